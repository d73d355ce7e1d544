// The input of one launch of an elementwise kernel: a table of keys, little-endian, 8-byte aligned.
//
//   TableHead
//   uint32 first_tile[entry_count]           tiles of all earlier keys; zeros to a multiple of 8
//   bytes
//   entries, at entries_offset, each of the same size:
//     EntryHead
//     uint64 pointers[pointer_count]         device addresses
//     scalars[scalar_count]                  8 bytes each; the value is in the first of them
//   uint64 more sources                      of the keys that have them, at their more_offset
//
// A block processes one tile at a time.  Pure: the table is bytes, and the addresses are numbers.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/small_vector.h"
#include "kernels/elementwise.h"

namespace tkv::kernels::cuda {

inline constexpr uint32_t kBlockThreads = 256;
inline constexpr uint32_t kElementsPerThread = 4;  // if all arrays of a key are aligned
inline constexpr uint32_t kBlockElements = kBlockThreads * kElementsPerThread;
inline constexpr size_t kAlignment = 16;  // bytes, the widest access

// Largest table that fits into the parameter of a launch.
inline constexpr size_t kParameterBytesMax = 4096;

struct TableHead {
  uint32_t entry_count;
  uint32_t tile_count;
  uint32_t entries_offset;  // bytes from the head
  uint32_t unused;
};
static_assert(sizeof(TableHead) == 16);

struct EntryHead {
  uint64_t count;        // elements
  uint32_t is_aligned;   // 1 if each pointer is a multiple of kAlignment
  uint32_t more_count;   // sources beyond Elementwise::kSourcesMax
  uint32_t more_offset;  // of their pointers, in bytes from the table's head
  uint32_t unused;
};
static_assert(sizeof(EntryHead) == 24);

inline size_t EntryBytes(const Elementwise& code) {
  return sizeof(EntryHead) + 8 * (size_t{code.pointer_count} + code.scalar_count);
}

using Scalars = SmallVector<std::byte, 64>;

// A key of a launch.
struct Entry {
  size_t count = 0;                       // elements
  SmallVector<uint64_t, 16> pointers;     // device addresses, by the numbers of the code
  SmallVector<uint64_t, 1> more_sources;  // device addresses
  Scalars scalars;                        // of the compute type, by the numbers of the code
};

uint64_t TilesOf(const Entry& entry);

class LaunchTable final {
 public:
  explicit LaunchTable(const Elementwise& code)
      : pointers_(code.pointer_count),
        scalars_(code.scalar_count),
        item_bytes_(ItemSize(code.compute)) {}

  // Adds a key with the pointers and scalars of the code.  All keys together have at most 2^31 - 1
  // tiles.
  void Add(const Entry& entry);
  std::vector<std::byte> Bytes() const;

 private:
  size_t pointers_, scalars_, item_bytes_;
  uint64_t tiles_ = 0;
  std::vector<uint32_t> first_tiles_;
  std::vector<std::byte> entries_;  // here more_offset counts from the first of more_sources_
  std::vector<uint64_t> more_sources_;
};

}  // namespace tkv::kernels::cuda
