#include "transport/address.h"

#include <sys/stat.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/udp.hpp>
#include <charconv>

#include "base/format.h"
#include "base/process.h"

namespace tkv {
namespace {

namespace asio = boost::asio;

PeerAddress ParseOne(const std::string& text) {
  PeerAddress address;
  if (text.starts_with("unix:")) {
    const size_t slash = text.find('/');
    if (slash != std::string::npos && slash + 1 < text.size() && text.size() - slash <= 100) {
      address.kind = PeerAddress::Kind::kUnix;
      address.host = text.substr(5, slash - 5);
      address.name = text.substr(slash + 1);
      return address;
    }
  } else if (text.starts_with("tcp:")) {
    const size_t colon = text.rfind(':');
    const bool bracketed = text.size() > 5 && text[4] == '[' && colon > 5 && text[colon - 1] == ']';
    address.host =
        bracketed ? text.substr(5, colon - 6) : text.substr(4, colon < 4 ? 0 : colon - 4);
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, address.port);
    const bool is_good = error == std::errc() && stop == end && !address.host.empty() &&
                         (bracketed || address.host.find(':') == std::string::npos);
    if (is_good) return address;
  }
  throw Fail(Code::kInvalidArgument,
             "address '{}': tcp:HOST:PORT or unix:HOST/NAME is needed, alternatives with commas",
             text);
}

}  // namespace

std::vector<PeerAddress> ParseAddresses(const std::string& text) {
  std::vector<PeerAddress> addresses;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    addresses.push_back(ParseOne(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return addresses;
}

std::string ToString(const PeerAddress& address) {
  if (address.kind == PeerAddress::Kind::kUnix) {
    return Format("unix:{}/{}", address.host, address.name);
  }
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return is_v6 ? Format("tcp:[{}]:{}", address.host, address.port)
               : Format("tcp:{}:{}", address.host, address.port);
}

std::string HostId() {
  constexpr size_t kShown = 18;  // of its 36 characters
  const std::string boot = StartOf("/proc/sys/kernel/random/boot_id", kShown);
  struct stat space{};
  stat("/proc/self/ns/net", &space);
  return Format("{}.{}", boot, space.st_ino);
}

std::string LocalAddressTowards(const std::string& host) {
  try {
    asio::io_context context;
    asio::ip::udp::resolver resolver(context);
    asio::ip::udp::socket socket(context);
    const auto found = resolver.resolve(host, "9");  // nothing is sent there
    socket.connect(found.begin()->endpoint());
    return socket.local_endpoint().address().to_string();
  } catch (const boost::system::system_error& error) {
    throw Fail(Code::kUnavailable, "no way to {}: {}", host, error.code().message());
  }
}

}  // namespace tkv
