// Ranges of bytes with their owners, and the pool that allocates blocks.

#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

namespace tkv {

class Arena;

// A read-only range of bytes.  A value type: copies share the owner.
struct Bytes {
  const std::byte* data = nullptr;
  size_t size = 0;
  std::shared_ptr<const void> owner;

  explicit operator bool() const noexcept { return data != nullptr; }
};

// A writable range of bytes.  Copies share the memory; `unique` is true if there is no other copy.
struct Block {
  std::byte* data = nullptr;
  size_t size = 0;
  std::shared_ptr<void> owner;

  explicit operator bool() const noexcept { return data != nullptr; }
  // Returns true if no other copy exists.  Reads by former copies then happened before this call
  // returns.
  // The count alone gives no such order.  Destroying a copy of the owner does, because it
  // synchronizes with the destruction of the others.
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

// A pool of 64-byte aligned blocks.  Large freed blocks stay for the next caller, because the
// first touch of fresh memory costs more than a copy.  Thread-safe; blocks may outlive the pool.
class BufferPool {
 public:
  static constexpr size_t kCachedFrom = size_t{64}
                                        << 10;  // bytes of the smallest block that is kept

  // With an arena, large blocks are allocated there as long as it has room.
  explicit BufferPool(std::shared_ptr<Arena> arena, size_t cache_bytes_max = size_t{256} << 20);
  explicit BufferPool(size_t cache_bytes_max = size_t{256} << 20)
      : BufferPool(nullptr, cache_bytes_max) {}
  ~BufferPool();

  //   throws  kResourceExhausted  the system has no such memory
  Block Allocate(size_t bytes);

  // The bytes of all blocks that are in use.
  size_t bytes_in_use() const noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::shared_ptr<Arena> arena_;
};

}  // namespace tkv
