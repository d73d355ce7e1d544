// Runs of bytes with what keeps them alive, and the pool that blocks come from.

#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

namespace tkv {

class Arena;

// Read-only bytes.  A value type: copying shares the owner.
struct Bytes {
  const std::byte* data = nullptr;
  size_t size = 0;
  std::shared_ptr<const void> owner;

  explicit operator bool() const noexcept { return data != nullptr; }
};

// A block that may be written.  Copying shares; `unique` says that nobody else can see it.
struct Block {
  std::byte* data = nullptr;
  size_t size = 0;
  std::shared_ptr<void> owner;

  explicit operator bool() const noexcept { return data != nullptr; }
  // What others have read there happened before: letting a copy go is ordered after their letting
  // go of theirs, which looking at the count alone is not.
  bool unique() const noexcept {
    if (owner.use_count() != 1) return false;
    const std::shared_ptr<void> ordered = owner;
    return true;
  }
  Bytes bytes() const { return {data, size, owner}; }
  template <typename T>
  T* as() const noexcept {
    return reinterpret_cast<T*>(data);
  }
};

// 64-byte aligned blocks.  Large ones are kept for the next caller when they are freed, because the
// first touch of fresh memory costs more than a copy.  Thread-safe; blocks may outlive the pool.
class BufferPool {
 public:
  static constexpr size_t kCachedFrom = size_t{64}
                                        << 10;  // bytes of the smallest block that is kept

  // With an arena large blocks come from there, as long as it has room.
  explicit BufferPool(std::shared_ptr<Arena> arena, size_t cache_bytes_max = size_t{256} << 20);
  explicit BufferPool(size_t cache_bytes_max = size_t{256} << 20)
      : BufferPool(nullptr, cache_bytes_max) {}
  ~BufferPool();

  //   throws  kResourceExhausted  the system has no such memory
  Block Allocate(size_t bytes);

  size_t bytes_in_use() const noexcept;  // of blocks that somebody holds

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::shared_ptr<Arena> arena_;
};

}  // namespace tkv
