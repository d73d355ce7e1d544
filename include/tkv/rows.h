// Rows: some of a value's rows, each with its id.  A key made by InitRows keeps each row by itself, so
// that what nobody has pushed takes no memory.

#pragma once

#include <cstdint>

#include "tkv/ndarray.h"

namespace tkv {

// What rows that nobody has written read as.  Reading makes no row.
struct RowInitializer {
  enum class Kind : uint8_t { kConstant = 0, kUniform = 1, kNormal = 2 };  // wire value
  Kind kind = Kind::kConstant;
  double a = 0;  // the constant; the lower end; the mean
  double b = 0;  // the upper end; the standard deviation
  uint64_t seed = 0;
  bool operator==(const RowInitializer&) const = default;
};

// Which rows a key keeps, and where: the rows are a function of its pushes alone, so that every run of them
// keeps the same.  A version is what one round of pushes makes, an asynchronous push by itself.
struct RowPolicy {
  enum class Score : uint8_t { kAge = 0, kCount = 1, kNorm = 2 };  // wire value
  static constexpr uint32_t kAdmitMax = 32767;
  // The push of an id that makes its row: what earlier ones bring is counted and dropped.
  uint32_t admit_count = 1;
  // A row that the last so many versions have not brought is gone: it reads as one that nobody has
  // written, and so does what updates kept beside it.  0: rows stay.
  uint64_t age_max = 0;
  // Where more rows are there than so many, those with the lowest score go, a sixteenth of them.  They are
  // counted in each bucket of the key by itself.  0: as many as there are ids.
  uint64_t rows_max = 0;
  // What is lowest: the version that has brought a row last, the number of versions that have, the
  // Euclidean norm of its value.  Of rows with the same score those go whose ids are lower when mixed.
  Score score = Score::kAge;
  // Whether it is noted when and how often each row was brought: 16 bytes a row.
  bool has_notes = false;
  // Bytes of rows with what updates keep beside them that are in memory, on all servers together; the others
  // are on a disk, those first that have not been pushed for the longest time.  What is read stays the same.
  // 0: all rows are in memory.
  uint64_t memory_max = 0;
  bool operator==(const RowPolicy&) const = default;
};

// What a key that is kept by rows has, on all servers.
struct TableStats {
  uint64_t rows = 0;        // those that are gone by age are there until their turn comes
  uint64_t candidates = 0;  // ids that have been pushed less often than makes a row
  uint64_t evicted = 0;     // rows that the policy has removed since the key was made
  uint64_t memory_bytes = 0;
  uint64_t version = 0;    // that the rows were last brought to
  uint64_t disk_rows = 0;  // of the rows: those on a disk
  uint64_t disk_bytes = 0;
  bool operator==(const TableStats&) const = default;
};

// Ids are below this number, so that an int64 holds each of them.
inline constexpr uint64_t kRowsMax = uint64_t{1} << 63;
// Of one row of a key that is kept by rows.
inline constexpr size_t kRowBytesMax = size_t{16} << 20;

// Row i of the values is the row `ids[i]` of the key.  An id may stand there several times, in any
// order: its rows are summed.
//   shape  ids: (n,) of int64; values: (n, ...), with the key's row behind the n
struct Rows {
  NDArray ids;
  NDArray values;
};

}  // namespace tkv
