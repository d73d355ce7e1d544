// Rows: some rows of a key's value, each with its id.  A key made by InitRows stores each row
// separately, so that rows that were never pushed take no memory.

#pragma once

#include <cstdint>

#include "tkv/ndarray.h"

namespace tkv {

// The value of rows that were never written.  Reading such a row does not create it.
struct RowInitializer {
  enum class Kind : uint8_t { kConstant = 0, kUniform = 1, kNormal = 2 };  // wire value
  Kind kind = Kind::kConstant;
  double a = 0;  // the constant; the lower end; the mean
  double b = 0;  // the upper end; the standard deviation
  uint64_t seed = 0;
  bool operator==(const RowInitializer&) const = default;
};

// The rules by which a key admits, removes and stores rows.  They depend only on the pushes, so
// that equal pushes always keep equal rows.  A version is made by each round of pushes, or by each
// asynchronous push.
struct RowPolicy {
  enum class Score : uint8_t { kAge = 0, kCount = 1, kNorm = 2 };  // wire value
  static constexpr uint32_t kAdmitMax = 32767;
  // The push of an id, counted from 1, that creates its row.  Earlier pushes are counted and
  // dropped.
  uint32_t admit_count = 1;
  // Removes a row that more than this many versions in a row did not push.  Afterwards the row and
  // its optimizer state read as if never written.  0: never.
  uint64_t age_max = 0;
  // Largest number of rows; 0: no limit.  If there are more, the rows with the lowest score are
  // removed until 15/16 of the limit remain.  Each bucket of the key has an equal share of the
  // limit.
  uint64_t rows_max = 0;
  // The score by which rows are removed.  kAge: the version of the row's last push; kCount: the
  // number of versions that pushed it; kNorm: the Euclidean norm of its value.  Among equal scores,
  // the row whose hashed id is lower is removed first.
  Score score = Score::kAge;
  // Records when and how often each row was pushed: 16 bytes a row.
  bool has_notes = false;
  // A push without an updater replaces the whole value, as in MXNet: rows that the push, or the
  // round of pushes, does not bring are removed, and read as if never written.
  bool replaces_all = false;
  // Bytes of rows and their optimizer state to keep in memory, over all servers; 0: all.  Other
  // rows are on a disk, first those whose last push is the oldest.  Reads return the same either
  // way.
  uint64_t memory_max = 0;
  bool operator==(const RowPolicy&) const = default;
};

// Row counts and sizes of a key that is stored by rows, over all servers.
struct TableStats {
  uint64_t rows = 0;        // includes expired rows that were not deleted yet
  uint64_t candidates = 0;  // ids pushed too rarely to have a row
  uint64_t evicted = 0;     // rows that the policy has removed since the key was created
  uint64_t memory_bytes = 0;
  uint64_t version = 0;    // the current version of the rows
  uint64_t disk_rows = 0;  // the part of `rows` that is on a disk
  uint64_t disk_bytes = 0;
  bool operator==(const TableStats&) const = default;
};

// Ids are below this number, so that an int64 holds each of them.
inline constexpr uint64_t kRowsMax = uint64_t{1} << 63;
// Largest row of a key that is stored by rows.
inline constexpr size_t kRowBytesMax = size_t{16} << 20;

// Rows of a key: row i of `values` is the row `ids[i]` of the key.  An id may occur several times,
// in any order; its rows are summed.
//   shape  ids: (n,) of int64; values: (n, ...), with the key's row behind the n
struct Rows {
  NDArray ids;
  NDArray values;
};

}  // namespace tkv
