// Keys of a local store that are kept by rows, and rows for those that are not.

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

//   blocks  until its rows can be read, at most the patience
//   throws  kInvalidArgument, kOutOfRange, kResourceExhausted
std::shared_ptr<Entry> MakeRowsEntry(const RowsInitItem& item, std::chrono::nanoseconds patience,
                                     const std::shared_ptr<RowDisk>& disk);

// The arrays of rows as they lie, or copies that are kept where they are strided.
//   blocks  until they can be read, at most the patience
//   throws  kOutOfRange, naming the id
RowList TakeRows(std::string_view verb, const KeyView& key, const Rows& rows, uint64_t row_count,
                 std::chrono::nanoseconds patience, std::vector<NDArray>* kept);

// What a call brings for each of its keys as rows; none: as arrays, or nothing.
using RowSums = std::vector<std::optional<SparseSum>>;

// The rows of a call, those of a key that stands twice as one list, for each of its keys; none for those
// that follow the keys of the items.  May borrow the arrays of the items and of `kept`.
//   blocks  until they can be read, at most the patience
//   throws  kOutOfRange (naming the id), kInvalidArgument (rows that cannot be summed)
RowSums SumRows(std::string_view verb, std::span<const RowsPushItem> items, const Claim& claim,
                std::chrono::nanoseconds patience, std::vector<NDArray>* kept);
// Arrays of all rows of a key that is kept by rows.
SparseSum SumArrays(const Entry& entry, std::span<const void* const> arrays);
// Rows of a key that has a value, zero elsewhere; of the compute type.
NDArray SpreadOut(const Entry& entry, const SparseSum& rows);

// A push to a key that is kept by rows.  All that may fail is done when it is made, and taken back where it
// is not run.
class RowsPush {
 public:
  //   optimizer  null: rows are assigned
  //   throws     kInvalidArgument (a type or a program that cannot), kResourceExhausted
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
  const std::shared_ptr<const Optimizer> state_of_;  // as of an Updater
  std::optional<RowTable> fresh_;  // the table for an optimizer that is new to it; shares pages
  std::optional<RowUpdate> update_;
  std::vector<double> scalars_;  // after it; then those before it
  RowPlaces places_;
  bool is_reserved_ = false;
  bool has_run_ = false;
};

// Jobs that update the rows of a key which has a value, as `whole` does all of it.
//   states  what the jobs point to; both vectors keep what they have
void AddRowJobs(const TileJob& whole, const Entry& entry, const SparseSum& rows,
                std::vector<std::unique_ptr<void*[]>>* states, std::vector<TileJob>* jobs);

// Copies rows to `out`, converting between floats.
//   ids  null: rows 0 to count - 1
void ReadRows(const RowTable& table, const int64_t* ids, size_t count, void* out, DType out_dtype,
              int threads);
//   blocks  until the ids can be read and the outputs written, at most the patience
//   throws  kOutOfRange, before anything is written
void PullRowsOf(std::string_view verb, const Claim& claim, std::span<const RowsPullItem> items,
                std::chrono::nanoseconds patience, int threads);

}  // namespace tkv
