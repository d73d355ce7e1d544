// Keys of a local store that are kept by rows, and pushes of rows to keys with a value.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "rows/row_table.h"
#include "rows/sparse_sum.h"
#include "store/claim.h"
#include "store/gather.h"
#include "store/key_table.h"

namespace tkv {

// Returns a new key kept by rows.
//   blocks  until the item's rows can be read, at most `patience`
//   throws  kInvalidArgument, kOutOfRange, kResourceExhausted
std::shared_ptr<Entry> MakeRowsEntry(std::string_view verb, const RowsInitItem& item,
                                     std::chrono::nanoseconds patience,
                                     const std::shared_ptr<RowDisk>& disk);

// Returns the ids and values of rows in contiguous memory.  Strided arrays are copied; `kept` owns
// the copies.
//   blocks  until the arrays can be read, at most `patience`
//   throws  kOutOfRange; the message names the id
RowList TakeRows(std::string_view verb, const KeyView& key, const Rows& rows, uint64_t row_count,
                 std::chrono::nanoseconds patience, std::vector<NDArray>* kept);

// The summed rows of each key of a call; none: the key gets arrays or nothing.
using RowSums = std::vector<std::optional<SparseSum>>;

// Returns the summed rows of each key of a call.  Several items of a key are summed together.  Keys
// after those of the items have none.  The sums may borrow memory of the items and of `kept`.
//   blocks  until the arrays can be read, at most the timeout (`patience`)
//   throws  kOutOfRange (the message names the id), kInvalidArgument (rows that cannot be summed)
RowSums SumRows(std::span<const RowsPushItem> items, const Claim& claim,
                std::vector<NDArray>* kept);
// Returns the sum of arrays that have all rows of a key kept by rows.
SparseSum SumArrays(const Entry& entry, std::span<const void* const> arrays);
// Returns rows as an array of the shape of the key's value, zero elsewhere, of the compute type.
NDArray SpreadOut(const Entry& entry, const SparseSum& rows);

// A push to a key kept by rows.  The constructor does everything that may fail.  The destructor
// undoes it if Run was not called.
class RowsPush {
 public:
  //   optimizer  null: rows are assigned
  //   throws     kInvalidArgument (unsuitable dtype or program), kResourceExhausted
  RowsPush(Entry* entry, SparseSum sum, const std::shared_ptr<const Optimizer>& optimizer,
           Updater* updater);
  RowsPush(RowsPush&&) = delete;
  ~RowsPush();

  void Run() noexcept;

 private:
  void Prepare(Updater* updater);
  RowTable& table() { return fresh_ ? *fresh_ : entry_->rows->table; }

  Entry* const entry_;
  const SparseSum sum_;
  const std::shared_ptr<const Optimizer> optimizer_;
  const std::shared_ptr<const Optimizer> state_of_;  // owner of the states, as in Updater
  // The table that Run gives to the key, if not the key's own changes: an empty one if the push
  // replaces all rows, or a copy with fresh states (sharing pages) if the optimizer is another.
  std::optional<RowTable> fresh_;
  std::optional<RowUpdate> update_;
  std::vector<double> scalars_;  // scalar states after the push; after Run, those before it
  ReservedRows reserved_;
  bool is_reserved_ = false;
  bool has_run_ = false;
};

// Adds jobs that update some rows of a key with a value, in the same way as `whole` updates all of
// it.
//   states  the memory to which the jobs point; both vectors keep their elements
void AddRowJobs(const TileJob& whole, const Entry& entry, const SparseSum& rows,
                std::vector<std::unique_ptr<void*[]>>* states, std::vector<TileJob>* jobs);

// Copies rows to `out` and converts between float types.
//   ids  null: rows 0 to count - 1
void ReadRows(const RowTable& table, const int64_t* ids, size_t count, void* out, DType out_dtype,
              int threads);
// Writes rows to the outputs of pulls.
//   blocks  until the ids can be read and the outputs written, at most the timeout (`patience`)
//   throws  kOutOfRange, before anything is written
void PullRowsOf(const Claim& claim, std::span<const RowsPullItem> items);

}  // namespace tkv
