// The keys of a store as a snapshot has them, and the parts of a snapshot as servers receive them.

#pragma once

#include <cstdint>
#include <vector>

#include "base/small_vector.h"
#include "checkpoint/reader.h"
#include "store/snapshots.h"
#include "tkv/kvstore.h"
#include "wire/message.h"

namespace tkv {

// Returns the entry of a key in a snapshot.
//   states  the version of each chunk that was cut
//   throws  kUnavailable  the optimizer has not reached every chunk
SavedKey DescribeKey(const Key& name, const KeyMeta& meta, const std::vector<ChunkState>& states,
                     uint64_t round, Parts parts);

// The parts of a key in the form in which its chunks receive them.
struct RestoredKey {
  std::vector<ChunkState> states;
  NDArray body;
  SmallVector<size_t, 1> ends;
};

// Reads all parts of a key with a value.
//   index   the position of the key in the snapshot
//   throws  kDataLoss, kResourceExhausted, and as checkpoint::Reader::Read
RestoredKey GatherValue(const checkpoint::Reader& reader, size_t index, const KeyMeta& meta,
                        Parts parts);
// Returns how many rows of a table one RESTORE has: about 16 MiB of them, at least one.
//   throws  kResourceExhausted  a single row is too large
uint64_t RowsAtOnce(const SavedKey& saved, const KeyMeta& meta, Parts parts);
// Reads rows or candidates of a table, `count` of them from row `first` on, in the form in which its
// buckets receive them.
//   throws  as GatherValue
RestoredKey GatherRows(const checkpoint::Reader& reader, size_t index, const KeyMeta& meta,
                       Parts parts, bool are_candidates, uint64_t first, uint64_t count);

}  // namespace tkv
