// The key of a scope by rows: two buckets.  A push has a row of its own in bucket 0 and, where its number
// is even, one in bucket 1, so that every other push brings that bucket nothing.  Where more than one push
// makes a row, all pushes bring one more row to bucket 0, the same.

#pragma once

#include <string>

#include "exploration/world.h"

namespace tkv::exploration {

inline constexpr size_t kSharedPush = kPushes - 1;  // whose row in bucket 0 is that of all pushes
inline constexpr int kRowOrdinals = 3;              // pushes of a life, at most

inline bool Brings(size_t push, uint32_t bucket) { return bucket == 0 || push % 2 == 0; }

KeyMeta RowsMeta(const Scope& scope);
const codec::Contribution& NoRows();
// What a push brings.
const codec::Contribution& RowsOfPush(size_t push, bool is_shared);
// The ids of all rows that there may be, and where they lie when they are pulled.
const codec::Contribution& AllIds();
size_t PulledRows();
//   pulled  what AllIds has brought
bool CountsOfRows(const float* pulled, uint32_t bucket, Counts* counts);
// What a bucket has: its values, and whose pushes its version is made of, by its notes.
//   versions  with pushes, before this one
// Empty, or what is wrong.
std::string LookAtRows(const Scope& scope, const RowTable& table, uint32_t bucket,
                       uint64_t versions, Counts* counts, uint64_t* pushes);

}  // namespace tkv::exploration
