#include "transport/socket/resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace tkv {
namespace {

// The pause before a thread without memory for an answer tries again.
constexpr std::chrono::milliseconds kRest{100};

}  // namespace

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

  //   throws  std::bad_alloc; nothing has changed
  void Found(const std::string& host, const LookedUp& found) {
    std::lock_guard lock(mutex);
    const auto asking = askers.find(host);
    if (asking == askers.end()) return;
    std::vector<Answer> more;
    for (const uint64_t asker : asking->second) more.push_back({asker, found});
    answers.reserve(answers.size() + more.size());
    std::ranges::move(more, std::back_inserter(answers));
    askers.erase(asking);
    if (wake) wake();
  }
  // Looks a name up on a thread of its own.  Without memory for the answer, the askers wait for it.
  void LookUpAndTell(const LookUp& look_up, const std::string& host) noexcept {
    for (;; std::this_thread::sleep_for(kRest)) {
      try {
        return Found(host, Tried(look_up, host));
      } catch (const std::bad_alloc&) {
        const std::lock_guard lock(mutex);
        if (!wake) return;
      }
    }
  }

 private:
  static LookedUp Tried(const LookUp& look_up, const std::string& host) {
    try {
      return look_up(host);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      return {{}, error.what()};
    }
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
  const auto forget = [&] {  // so that a later question starts a thread
    std::lock_guard lock(state_->mutex);
    state_->askers.erase(host);
  };
  try {
    std::thread([state = state_, look_up = look_up_, host] {
      state->LookUpAndTell(look_up, host);
    }).detach();
  } catch (const std::system_error& error) {
    try {
      state_->Found(host, {{}, error.what()});
    } catch (const std::bad_alloc&) {
      forget();
      throw;
    }
  } catch (const std::bad_alloc&) {
    forget();
    throw;
  }
}

std::vector<Resolver::Answer> Resolver::TakeAnswers() {
  std::lock_guard lock(state_->mutex);
  return std::exchange(state_->answers, {});
}

}  // namespace tkv
