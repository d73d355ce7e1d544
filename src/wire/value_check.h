// The checksum of values that travel between hosts: XXH3-64 over the bytes as they pass.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tkv {

// A running checksum.
class ValueCheck {
 public:
  static constexpr size_t kBytes = sizeof(uint64_t);  // on the wire
  // The best piece to add at once: small enough to be in a cache when it is sent or used next, and
  // large enough for few calls.
  static constexpr size_t kPieceBytes = size_t{1024} << 10;

  ValueCheck();
  ~ValueCheck();
  ValueCheck(ValueCheck&&) noexcept;
  ValueCheck& operator=(ValueCheck&&) noexcept;
  void Restart();
  void Add(const void* data, size_t bytes);
  uint64_t value() const;  // the checksum of all bytes since Restart

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tkv
