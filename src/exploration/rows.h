// Defines the sparse key of a scope, which has two buckets.
//
// Each push has a row of its own in bucket 0.  A push with an even number also has one in bucket 1,
// so every other push sends that bucket no row.  If a row needs more than one push to be admitted,
// all pushes also send one common row to bucket 0.

#pragma once

#include <string>

#include "exploration/world.h"

namespace tkv::exploration {

inline constexpr size_t kSharedPush = kPushes - 1;  // stands for the common row in bucket 0
inline constexpr int kRowOrdinals = 3;              // most pushes of an incarnation

inline bool Brings(size_t push, uint32_t bucket) { return bucket == 0 || push % 2 == 0; }

KeyMeta RowsMeta(const Scope& scope);
const codec::Contribution& NoRows();
// Returns the rows that a push sends.
const codec::Contribution& RowsOfPush(size_t push, bool is_shared);
// Returns the ids of all rows that may exist, in the order in which a pull returns them.
const codec::Contribution& AllIds();
size_t PulledRows();
// Reads the counts of a bucket from pulled rows.  Returns false if a value is no count.
//   pulled  the values of a pull of AllIds
bool CountsOfRows(const float* pulled, uint32_t bucket, Counts* counts);
// Reads a bucket's values, and finds from its notes which pushes made its version.  Returns an
// empty text, or the broken rule.
//   versions  number of earlier versions with pushes
std::string FindPushesInRows(const Scope& scope, const RowTable& table, uint32_t bucket,
                             uint64_t versions, Counts* counts, uint64_t* pushes);

}  // namespace tkv::exploration
