#include "store/local_rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/format.h"
#include "base/mix.h"
#include "kernels/kernels.h"
#include "store/checks.h"
#include "update/parallel.h"
#include "update/program_body.h"
#include "update/random.h"

namespace tkv {
namespace {

// Returns the array's elements in contiguous memory.  A strided array is copied; `kept` owns the
// copy.
const void* Take(const NDArray& array, std::chrono::nanoseconds patience,
                 std::vector<NDArray>* kept) {
  array.storage()->WaitReadable(patience);
  if (array.contiguous()) return array.HostData();
  return kept->emplace_back(array.Copy()).HostData();
}

size_t RowElements(const Entry& entry) {
  if (entry.by_rows()) return entry.rows->table.row_elements();
  const int64_t count = entry.value.shape()[0];
  return static_cast<size_t>(count == 0 ? 0 : entry.value.size() / count);
}

uint64_t RowCount(const Entry& entry) {
  if (entry.by_rows()) return entry.rows->row_count;
  return static_cast<uint64_t>(entry.value.shape()[0]);
}

}  // namespace

RowList TakeRows(std::string_view verb, const KeyView& key, const Rows& rows, uint64_t row_count,
                 std::chrono::nanoseconds patience, std::vector<NDArray>* kept) {
  const RowList list = NamingKey(verb, key, [&] {
    const auto* const ids = static_cast<const int64_t*>(Take(rows.ids, patience, kept));
    return RowList{{ids, static_cast<size_t>(rows.ids.size())}, Take(rows.values, patience, kept)};
  });
  CheckIds(verb, key, list.ids, row_count);
  return list;
}

std::shared_ptr<Entry> MakeRowsEntry(std::string_view verb, const RowsInitItem& item,
                                     std::chrono::nanoseconds patience,
                                     const std::shared_ptr<RowDisk>& disk) {
  const auto entry = NamingKey(verb, item.key, [&] {
    RowTable table(item.dtype, static_cast<size_t>(item.row_shape.size()), item.initializer, 1,
                   item.policy, disk);
    std::shared_ptr<Updater> own;
    if (item.optimizer != nullptr) {
      own = std::make_shared<Updater>();
      own->optimizer = item.optimizer;
      const RowUpdate trial(own->CompiledFor(item.dtype), item.dtype, table.row_elements(),
                            item.optimizer->ParamsFor(item.key), {}, 1, 1);
    }
    return std::make_shared<Entry>(
        item.key, RowsKey{item.row_shape, item.row_count, std::move(table), {}, std::move(own)});
  });
  if (item.rows == nullptr) return entry;
  std::vector<NDArray> kept;
  const RowList list = TakeRows(verb, item.key, *item.rows, item.row_count, patience, &kept);
  CheckEachOnce(verb, item.key, list.ids);
  NamingKey(verb, item.key, [&] {
    RowTable& table = entry->rows->table;
    const SparseSum rows =
        SparseSum::Of({&list, 1}, item.row_count, item.dtype, table.row_elements(), RowOrder::kMix,
                      SparseSum::Memory::kBorrow);
    ReservedRows reserved;
    table.Reserve(rows.names(), &reserved);
    table.Assign(reserved, rows.values(), rows.dtype());
    table.Settle();
  });
  entry->of_rows.init_bytes = item.rows->values.bytes();
  return entry;
}

RowSums SumRows(std::span<const RowsPushItem> items, const Claim& claim,
                std::vector<NDArray>* kept) {
  size_t arrays = 0;
  for (const RowsPushItem& item : items) arrays += 2 * item.values.size();
  kept->reserve(arrays);
  size_t groups = 0;
  for (size_t i = 0; i < items.size(); ++i) groups = std::max(groups, claim.push_groups[i] + 1);
  std::vector<std::vector<RowList>> lists(groups);
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t group = claim.push_groups[i];
    for (const Rows* rows : items[i].values) {
      lists[group].push_back(TakeRows(claim.verb, items[i].key, *rows,
                                      RowCount(*claim.entries[group]), claim.options.patience,
                                      kept));
    }
  }
  RowSums sums(claim.entries.size());
  for (size_t g = 0; g < groups; ++g) {
    const Entry& entry = *claim.entries[g];
    // Rows of a dense value are sorted by id, because adjacent rows are updated together.
    sums[g] = NamingKey(claim.verb, entry.key.view(), [&] {
      return SparseSum::Of(lists[g], RowCount(entry), entry.dtype(), RowElements(entry),
                           entry.by_rows() ? RowOrder::kMix : RowOrder::kId,
                           entry.by_rows() ? SparseSum::Memory::kBorrow : SparseSum::Memory::kOwn);
    });
  }
  return sums;
}

SparseSum SumArrays(const Entry& entry, std::span<const void* const> arrays) {
  std::vector<int64_t> ids(entry.rows->row_count);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<RowList> lists;
  for (const void* array : arrays) lists.push_back({ids, array});
  return SparseSum::Of(lists, RowCount(entry), entry.dtype(), entry.rows->table.row_elements(),
                       RowOrder::kMix, SparseSum::Memory::kBorrow);
}

NDArray SpreadOut(const Entry& entry, const SparseSum& rows) {
  if (!IsArithmetic(entry.dtype())) {
    throw Fail(Code::kInvalidArgument, "{} values cannot be summed or updated",
               Name(entry.dtype()));
  }
  NDArray all = NDArray::Zeros(entry.value.shape(), rows.dtype());
  const RowSource values = rows.values();
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(static_cast<std::byte*>(all.HostData()) + rows.names()[i] * values.row_bytes,
                values.at(i), values.row_bytes);
  }
  return all;
}

// -------------------------------------------------------------------------------------------------
// push

RowsPush::RowsPush(Entry* entry, SparseSum sum, const std::shared_ptr<const Optimizer>& optimizer,
                   Updater* updater)
    : entry_(entry),
      sum_(std::move(sum)),
      optimizer_(optimizer),
      state_of_(updater == nullptr ? nullptr : updater->StateOwner()) {
  if (optimizer_ != nullptr) {
    Prepare(updater);
  } else if (entry->rows->table.policy().replaces_all) {
    fresh_ = entry->rows->table.Emptied();
  }
  table().Admit(sum_.names(), &reserved_);
  is_reserved_ = true;
  try {
    if (optimizer_ != nullptr && !optimizer_->lazy()) table().ReserveAll();
  } catch (...) {
    table().TakeBack(sum_.names(), reserved_);
    throw;
  }
}

RowsPush::~RowsPush() {
  if (is_reserved_ && !has_run_) table().TakeBack(sum_.names(), reserved_);
}

void RowsPush::Prepare(Updater* updater) {
  RowsKey& rows = *entry_->rows;
  if (!IsArithmetic(entry_->dtype())) {
    throw Fail(Code::kInvalidArgument, "{} values cannot be summed or updated",
               Name(entry_->dtype()));
  }
  const bool goes_on = entry_->state_of == state_of_;
  const uint64_t updates = goes_on ? entry_->updates : 0;
  const bool draws = optimizer_->program().body().draw_count > 0;
  update_.emplace(updater->CompiledFor(entry_->dtype()), entry_->dtype(), rows.table.row_elements(),
                  optimizer_->ParamsFor(entry_->key.view()),
                  goes_on ? std::span<const double>(rows.scalars) : std::span<const double>(),
                  static_cast<double>(updates + 1), 1, draws ? StreamOf(entry_->key.view()) : 0);
  scalars_ = update_->scalars();
  if (goes_on) return;
  fresh_ = rows.table;
  fresh_->StartStates(update_->states(), optimizer_->multi_precision());
}

void RowsPush::Run() noexcept {
  has_run_ = true;
  if (optimizer_ == nullptr) {
    table().Assign(reserved_, sum_.values(), sum_.dtype());
  } else if (optimizer_->lazy()) {
    table().Update(&*update_, sum_.names(), reserved_, sum_.values());
  } else {
    table().UpdateAll(&*update_, sum_.names(), sum_.values());
  }
  table().NotePush(sum_.names(), reserved_);
  table().Advance();
  const bool is_fresh = fresh_.has_value();
  if (is_fresh) {
    entry_->rows->table = std::move(*fresh_);
    fresh_.reset();
  }
  if (optimizer_ == nullptr) return;
  if (is_fresh) {
    entry_->state_of = state_of_;
    entry_->updates = 0;
  }
  std::swap(entry_->rows->scalars, scalars_);
  ++entry_->updates;
}

void AddRowJobs(const TileJob& whole, const Entry& entry, const SparseSum& rows,
                std::vector<std::unique_ptr<void*[]>>* states, std::vector<TileJob>* jobs) {
  const DType compute = ComputeType(whole.dtype);
  const size_t elements = RowElements(entry);
  const RowSource values = rows.values();
  for (size_t i = 0; i < rows.size();) {
    const uint64_t id = rows.names()[i];
    size_t end = i + 1;
    while (end < rows.size() && rows.names()[end] == id + (end - i)) ++end;
    const size_t begin = id * elements;
    TileJob& job = jobs->emplace_back(whole);
    job.count = (end - i) * elements;
    job.base = values.at(i);
    job.value = static_cast<std::byte*>(whole.value) + begin * ItemSize(whole.dtype);
    if (whole.master != nullptr) job.master = whole.master + begin;
    job.begin = begin;
    const size_t arrays = whole.update->program.states().size();
    auto& moved = states->emplace_back(std::make_unique<void*[]>(whole.states.size() + 1));
    for (size_t s = 0; s < whole.states.size(); ++s) {
      // Scalar states have no rows.
      const size_t offset = s < arrays ? begin * ItemSize(compute) : 0;
      moved[s] = static_cast<std::byte*>(whole.states[s]) + offset;
    }
    job.states = {moved.get(), whole.states.size()};
    i = end;
  }
}

// -------------------------------------------------------------------------------------------------
// pull

void ReadRows(const RowTable& table, const int64_t* ids, size_t count, void* out, DType out_dtype,
              int threads) {
  constexpr size_t kGrain = 4096;
  constexpr size_t kBlock = 512;
  constexpr size_t kScratchBytes = size_t{64} << 10;
  const bool converts = out_dtype != table.dtype();
  const size_t block =
      converts ? std::clamp<size_t>(kScratchBytes / (table.row_bytes() + 1), 1, kBlock) : kBlock;
  const size_t out_bytes = table.row_elements() * ItemSize(out_dtype);
  ParallelFor(threads, count, kGrain, [&](size_t, size_t begin, size_t end) {
    std::array<uint64_t, kBlock> mixes;
    std::vector<std::byte> scratch(converts ? block * table.row_bytes() : 0);
    for (size_t at = begin; at < end; at += block) {
      const size_t length = std::min(block, end - at);
      for (size_t i = 0; i < length; ++i) {
        mixes[i] = Mix(ids == nullptr ? at + i : static_cast<uint64_t>(ids[at + i]));
      }
      std::byte* const target = static_cast<std::byte*>(out) + at * out_bytes;
      table.Read({mixes.data(), length}, converts ? scratch.data() : target);
      if (converts) {
        kernels::Convert(table.dtype(), scratch.data(), out_dtype, target,
                         length * table.row_elements());
      }
    }
  });
}

void PullRowsOf(const Claim& claim, std::span<const RowsPullItem> items) {
  const std::chrono::nanoseconds patience = claim.options.patience;
  const int threads = ThreadsFor(claim.options.threads);
  std::vector<NDArray> ids;
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].ids->storage()->WaitReadable(patience);
    items[i].out->storage()->WaitWritable(patience);
    ids.push_back(items[i].ids->Packed());
    CheckIds(claim.verb, items[i].key, IdsOf(ids.back()),
             RowCount(*claim.entries[claim.pull_groups[i]]));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const RowsKey& rows = *claim.entries[claim.pull_groups[i]]->rows;
    const NDArray& out = *items[i].out;
    const NDArray packed =
        out.contiguous() ? out : NDArray::Empty(out.shape(), out.dtype(), out.context());
    const auto from = IdsOf(ids[i]);
    NamingKey(claim.verb, items[i].key, [&] {
      ReadRows(rows.table, from.data(), from.size(), packed.HostData(), out.dtype(), threads);
    });
    if (!out.contiguous()) out.CopyFrom(packed);
  }
}

}  // namespace tkv
