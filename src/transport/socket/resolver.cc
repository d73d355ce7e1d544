#include "transport/socket/resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <map>
#include <mutex>
#include <system_error>
#include <thread>

namespace tkv {

LookedUp LookUpBySystem(const std::string& host) {
  LookedUp result;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    result.error = gai_strerror(error);
    return result;
  }
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    char digits[NI_MAXHOST];
    if (getnameinfo(at->ai_addr, at->ai_addrlen, digits, sizeof(digits), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      result.addresses.emplace_back(digits);
    }
  }
  freeaddrinfo(found);
  if (result.addresses.empty()) result.error = "the name has no address";
  return result;
}

struct Resolver::State {
  std::mutex mutex;
  std::function<void()> wake;  // empty when the resolver has ended
  std::map<std::string, std::vector<uint64_t>> askers;
  std::vector<Answer> answers;

  void Found(const std::string& host, const LookedUp& found) {
    std::lock_guard lock(mutex);
    for (const uint64_t asker : askers[host]) answers.push_back({asker, found});
    askers.erase(host);
    if (wake) wake();
  }
};

Resolver::Resolver(LookUp look_up, std::function<void()> wake)
    : look_up_(std::move(look_up)), state_(std::make_shared<State>()) {
  state_->wake = std::move(wake);
}

Resolver::~Resolver() {
  std::lock_guard lock(state_->mutex);
  state_->wake = nullptr;
}

void Resolver::Ask(uint64_t asker, const std::string& host) {
  {
    std::lock_guard lock(state_->mutex);
    std::vector<uint64_t>& askers = state_->askers[host];
    askers.push_back(asker);
    if (askers.size() > 1) return;
  }
  try {
    std::thread([state = state_, look_up = look_up_, host] {
      LookedUp found;
      try {
        found = look_up(host);
      } catch (const std::exception& error) {
        found.error = error.what();
      }
      state->Found(host, found);
    }).detach();
  } catch (const std::system_error& error) {
    state_->Found(host, {{}, error.what()});
  }
}

std::vector<Resolver::Answer> Resolver::TakeAnswers() {
  std::lock_guard lock(state_->mutex);
  return std::exchange(state_->answers, {});
}

}  // namespace tkv
