// The check of values that leave a host: XXH3-64 over bytes as they pass.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tkv {

class ValueCheck {
 public:
  static constexpr size_t kBytes = sizeof(uint64_t);  // on the wire
  // What is best added at once: it is still in a cache when it is sent or used next, and costs few calls.
  static constexpr size_t kPieceBytes = size_t{1024} << 10;

  ValueCheck();
  ~ValueCheck();
  ValueCheck(ValueCheck&&) noexcept;
  ValueCheck& operator=(ValueCheck&&) noexcept;
  void Restart();
  void Add(const void* data, size_t bytes);
  uint64_t value() const;  // of what has been added

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tkv
