// URLs of jobs.

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/format.h"
#include "tkv/job.h"
#include "transport/address.h"

namespace tkv {
namespace {

constexpr std::string_view kScheme = "tkv://";
constexpr std::string_view kTcp = "tcp:";

bool IsPlain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("-._~:[]").find(c) != std::string_view::npos;
}

std::string Escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    escaped += IsPlain(c) ? std::string(1, c) : Format("%{:02X}", static_cast<unsigned char>(c));
  }
  return escaped;
}

std::string Unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i];
      continue;
    }
    unsigned value = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2) {
      throw Fail(Code::kInvalidArgument, "'%{}' is no byte", digits);
    }
    plain += static_cast<char>(value);
    i += 2;
  }
  return plain;
}

// Returns true for "HOST:PORT", which is TCP.  Other addresses begin with their kind.
bool IsHostAndPort(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == address.size()) return false;
  const std::string_view port = address.substr(colon + 1);
  return address.find('/') == std::string_view::npos &&
         std::ranges::all_of(port, [](unsigned char c) { return std::isdigit(c) != 0; });
}

template <typename F>
void ForEachPart(std::string_view text, F f) {
  while (true) {
    const size_t comma = text.find(',');
    f(text.substr(0, comma));
    if (comma == std::string_view::npos) return;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

std::string UrlOf(const Job& job) {
  if (job.head.empty()) return {};
  std::string addresses;
  ForEachPart(job.head, [&addresses](std::string_view address) {
    if (!addresses.empty()) addresses += ',';
    if (address.starts_with(kTcp)) address.remove_prefix(kTcp.size());
    addresses += Escape(address);
  });
  return Format("{}{}/{}", kScheme, addresses, Escape(job.id));
}

Job JobOfUrl(std::string_view url) {
  const auto refuse = [url](std::string_view why) {
    return Fail(Code::kInvalidArgument,
                "'{}' is no URL of a job: {}; kv.url and the first line of `tkv launch` say it: "
                "tkv://HOST:PORT/JOB",
                url, why);
  };
  if (!url.starts_with(kScheme)) throw refuse("it does not begin with tkv://");
  const std::string_view rest = url.substr(kScheme.size());
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos || slash + 1 == rest.size()) throw refuse("it names no job");
  if (slash == 0) throw refuse("it names no host");
  Job job;
  try {
    job.id = Unescape(rest.substr(slash + 1));
    ForEachPart(rest.substr(0, slash), [&job](std::string_view part) {
      const std::string address = Unescape(part);
      if (!job.head.empty()) job.head += ',';
      job.head += IsHostAndPort(address) ? Format("{}{}", kTcp, address) : address;
    });
  } catch (const Error& error) {
    throw refuse(error.what());
  }
  return job;
}

}  // namespace tkv
