// A span: an operation of a process on a key, its begin and its duration.

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
    kPush = 0,                 // worker: until all servers have it; server: from receipt to answer
    // Worker: until the value has arrived; server: from receipt to answer, including waits.
    kPull = 1,
    kUpdate = 2,  // server: sums the last arrival of a round and runs the updater
    kOther = 3,   // init, delete, barrier and the rest
  };
  enum class State : uint8_t { kDone = 0, kFailed = 1, kUnderWay = 2 };  // wire value
  int64_t begin = 0;        // nanoseconds of the process's clock
  int64_t nanoseconds = 0;  // duration
  uint64_t key_low = 0, key_high = 0;
  uint64_t number = 0;  // push and update: the round; pull: the version
  uint64_t bytes = 0;   // bytes of the value
  uint32_t chunk = 0;
  int32_t rank = -1;  // rank of the worker that requested it
  Kind kind = Kind::kOther;
  State state = State::kDone;

  bool operator==(const Span&) const = default;
};
inline constexpr size_t kSpanKinds = 4;
const char* Name(Span::Kind kind) noexcept;
const char* Name(Span::State state) noexcept;

// Wire format: kSpanBytes bytes for each span.
inline constexpr size_t kSpanBytes = 58;
std::string EncodeSpans(std::span<const Span> spans);
//   throws  kInvalidArgument  the bytes are not encoded spans
std::vector<Span> DecodeSpans(std::string_view bytes);

}  // namespace tkv
