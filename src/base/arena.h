// Memory that other processes of this host can read: one sealed memfd, which occupies memory only
// as it is used.  The memfd has no name in any file system, so a crash leaves nothing behind.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/buffer.h"
#include "base/process.h"

namespace tkv {

// An allocator of shared memory.  Thread-safe.  Its blocks keep it alive.  A forked child does not
// have its memory.
class Arena final : public std::enable_shared_from_this<Arena> {
 public:
  // Returns a new arena, or null if the system does not allow one; `why` then has the reason.
  static std::shared_ptr<Arena> Open(std::string* why);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // The largest block.  The system provides the memory of a block on the thread that calls
  // Allocate, and larger blocks would delay that thread.
  static constexpr size_t kBlockBytesMax = size_t{64} << 20;

  // Allocates a block of whole pages.  Returns an empty block if `bytes` is 0 or above
  // kBlockBytesMax, if the arena is full, or if the system has no memory left.
  Block Allocate(size_t bytes);
  bool Contains(const std::byte* data) const noexcept {
    return data >= base_ && data < base_ + size_;
  }
  // Returns the offset of an address in the file.
  uint64_t OffsetOf(const std::byte* data) const noexcept {
    return static_cast<uint64_t>(data - base_);
  }
  // The file descriptor for other processes: they can read the file, and nobody can shrink it.
  int reader_file() const noexcept { return reader_file_; }

 private:
  // Offset to size; adjacent runs are joined.
  using Runs = std::map<size_t, size_t>;

  Arena() = default;
  Runs::iterator Extend(size_t end);
  Runs::iterator Insert(size_t offset, size_t bytes) noexcept;
  void Free(size_t offset, size_t bytes) noexcept;

  const unsigned birth_ = ForkGeneration();
  int file_ = -1;
  int reader_file_ = -1;
  std::byte* base_ = nullptr;
  size_t size_ = 0;
  std::mutex mutex_;
  size_t backed_ = 0;  // bytes from the start that have memory
  Runs free_;
};

// A read-only view of another process's arena.
class ArenaView {
 public:
  // Maps a file and takes ownership of its descriptor.  Returns null if it cannot be mapped; `why`
  // then has the reason.
  //   throws  kInvalidArgument  the file is no arena: its owner could shrink it under a reader, or
  //           its pages are not those of ordinary shared memory, and a read could kill this process
  static std::unique_ptr<ArenaView> Map(int file, std::string* why);
  ~ArenaView();
  ArenaView(const ArenaView&) = delete;
  ArenaView& operator=(const ArenaView&) = delete;

  // Returns the bytes at an offset.  The owner must have written there before: a read of a hole
  // would allocate its memory at the reader's cost.
  //   throws  kInvalidArgument  a part of the range is outside of the file, or has no memory
  const std::byte* At(uint64_t offset, uint64_t bytes) const;

 private:
  ArenaView() = default;
  bool HasMemory(size_t offset, size_t bytes) const;
  const unsigned birth_ = ForkGeneration();
  int file_ = -1;
  const std::byte* base_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tkv
