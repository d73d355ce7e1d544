#include "wire/hello.h"

#include <string>

#include "base/format.h"

namespace tkv {

const char* Name(Role role) {
  if (role == Role::kWorker) return "worker";
  if (role == Role::kServer) return "server";
  if (role == Role::kObserver) return "observer";
  return "process of an unknown role";
}

std::optional<Hello> ReadHello(LinkId link, const Message& message, std::string_view job,
                               const Protocol& ours, std::string_view self, Effects* effects) {
  Hello hello;
  try {
    hello = DecodeHello(message.extra);
  } catch (const Error& error) {
    effects->Close(link, error.code(), Format("HELLO: {}", error.what()));
    return std::nullopt;
  }
  if (hello.job != job) {
    effects->Close(link, Code::kUnauthenticated,
                   Format("HELLO: job '{}', this is '{}'", hello.job, job));
    return std::nullopt;
  }
  const std::string who = hello.rank != kNoRank ? Format("{} {}", Name(hello.role), hello.rank)
                          : hello.role == Role::kObserver ? "an observer"
                                                          : Format("a {}", Name(hello.role));
  if (const auto error = WhyNotTogether(who, hello.protocol, self, ours)) {
    effects->Log(Level::kWarning, Format("refused: {}", error->what()));
    effects->Close(link, error->code(), Format("HELLO: {}", error->what()));
    return std::nullopt;
  }
  return hello;
}

}  // namespace tkv
