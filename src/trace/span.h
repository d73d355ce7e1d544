// What a process has done with a key, when, and for how long.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tkv {

struct Span {
  enum class Kind : uint8_t {  // wire value: never renumber
    kPush = 0,                 // worker: until all servers hold it; server: from receipt to answer
    kPull = 1,    // worker: until it has landed; server: from receipt to answer, its wait included
    kUpdate = 2,  // server: the last arrival of a round summed, and the updater run
    kOther = 3,   // init, delete, barrier and the rest
  };
  enum class State : uint8_t { kDone = 0, kFailed = 1, kUnderWay = 2 };  // wire value
  int64_t begin = 0;        // ns, by the process's clock
  int64_t nanoseconds = 0;  // how long
  uint64_t key_low = 0, key_high = 0;
  uint64_t number = 0;  // of a push and an update the round, of a pull the version
  uint64_t bytes = 0;   // of the value
  uint32_t chunk = 0;
  int32_t rank = -1;  // of the worker that asked for it
  Kind kind = Kind::kOther;
  State state = State::kDone;

  bool operator==(const Span&) const = default;
};
inline constexpr size_t kSpanKinds = 4;
const char* Name(Span::Kind kind) noexcept;
const char* Name(Span::State state) noexcept;

// As they travel: kSpanBytes each.
inline constexpr size_t kSpanBytes = 58;
std::string EncodeSpans(std::span<const Span> spans);
//   throws  kInvalidArgument  the bytes are no spans
std::vector<Span> DecodeSpans(std::string_view bytes);

}  // namespace tkv
