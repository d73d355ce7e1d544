// Inputs and outputs of the pure state machines: time and links are numbers, effects are data.

#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "wire/message.h"

namespace tkv {

using Time = int64_t;  // nanoseconds since any fixed moment
inline constexpr Time kNever = std::numeric_limits<Time>::max();
inline constexpr Time kMillisecond = 1'000'000;
inline constexpr Time kSecond = 1'000'000'000;

inline constexpr double Seconds(Time time) { return static_cast<double>(time) / kSecond; }

using LinkId = uint64_t;  // one connection; a number is never reused
inline constexpr LinkId kNoLink = 0;

// The process at the other end of a link, as the dialing side names it.
struct Peer {
  enum class Kind : uint8_t { kHead, kServer };
  Kind kind = Kind::kHead;
  uint32_t index = 0;
  auto operator<=>(const Peer&) const = default;
};
std::string ToString(const Peer& peer);

enum class Level : uint8_t { kDebug, kInfo, kWarning, kError };

// The messages, closes and log lines that a state machine asks its process to carry out.
struct Effects {
  struct Sending {
    LinkId link;
    Message message;
  };
  struct Closing {  // after all sends; the peer receives the reason
    LinkId link;
    Code code;
    std::string reason;
  };
  struct Notice {
    Level level;
    std::string text;
  };

  std::vector<Sending> sends;
  std::vector<Closing> closes;
  std::vector<Message> to_head;
  std::vector<Peer> dials;
  std::vector<Notice> notices;

  void Send(LinkId link, Message message) { sends.push_back({link, std::move(message)}); }
  void Close(LinkId link, Code code, std::string reason) {
    closes.push_back({link, code, std::move(reason)});
  }
  void Log(Level level, std::string text) { notices.push_back({level, std::move(text)}); }
  void Clear() {
    sends.clear();
    closes.clear();
    to_head.clear();
    dials.clear();
    notices.clear();
  }
};

}  // namespace tkv
