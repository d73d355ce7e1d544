// Memory that other processes of this host can read: one sealed memfd, which takes memory as it is
// used.  It has no name in any file system, so nothing can be left behind.

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

// Thread-safe.  Blocks keep it alive.  A forked child does not have its memory.
class Arena final : public std::enable_shared_from_this<Arena> {
 public:
  // Null where the system does not allow it; `why` is told then.
  static std::shared_ptr<Arena> Open(std::string* why);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // The system backs a block when it is allocated, on the caller's thread, which larger ones would
  // hold up.
  static constexpr size_t kBlockBytesMax = size_t{64} << 20;

  // Whole pages.  Without memory where the block is too large, there is no room, or the system has
  // none left.
  Block Allocate(size_t bytes);
  bool Contains(const std::byte* data) const noexcept {
    return data >= base_ && data < base_ + size_;
  }
  // Where it is in the file.
  uint64_t OffsetOf(const std::byte* data) const noexcept {
    return static_cast<uint64_t>(data - base_);
  }
  // The file as others may have it: they can read it, and nobody can make it smaller.
  int reader_file() const noexcept { return reader_file_; }

 private:
  using Runs = std::map<size_t, size_t>;  // offset to size, none beside another

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

// The arena of another process, to be read here.
class ArenaView {
 public:
  // Takes the file over.  Null where it cannot be mapped; `why` is told then.
  //   throws  kInvalidArgument  it is no arena: its owner could take memory away under a reader, or
  //           its pages are not those of ordinary shared memory, and a read could end the process
  static std::unique_ptr<ArenaView> Map(int file, std::string* why);
  ~ArenaView();
  ArenaView(const ArenaView&) = delete;
  ArenaView& operator=(const ArenaView&) = delete;

  // The bytes there.  A page of a sparse file would get its memory when it is read, at the reader's
  // cost, so the owner has to have written there before.
  //   throws  kInvalidArgument  a part of it is outside, or has no memory
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
