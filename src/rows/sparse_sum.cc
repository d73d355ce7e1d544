#include "rows/sparse_sum.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/format.h"
#include "base/mix.h"
#include "kernels/kernels.h"
#include "rows/row_memory.h"

namespace tkv {
namespace {

struct Named {
  uint64_t name;
  uint64_t at;  // index among the rows of all lists
  bool operator<(const Named& other) const {
    return name != other.name ? name < other.name : at < other.at;
  }
};

constexpr size_t kSmall = 64;           // at most so many rows are sorted directly
constexpr int kDistributeBitsMax = 15;  // so that the counts stay in the cache
constexpr size_t kRowsAhead = 8;

// Sorts rows by name.  Names are spread evenly (mixes always, ids often), so one distribution pass
// brings each row near its final position.
void Sort(std::vector<Named>* rows) {
  const size_t count = rows->size();
  if (std::is_sorted(rows->begin(), rows->end())) return;
  if (count <= kSmall) return std::sort(rows->begin(), rows->end());
  const auto [least, most] = std::minmax_element(
      rows->begin(), rows->end(), [](const Named& a, const Named& b) { return a.name < b.name; });
  const uint64_t low = least->name;
  const auto range_bits = static_cast<int>(std::bit_width(most->name - low));
  const int bits =
      std::min({static_cast<int>(std::bit_width(count)) - 1, kDistributeBitsMax, range_bits});
  const int shift = range_bits - bits;
  std::vector<size_t> begins((size_t{1} << bits) + 1);
  for (const Named& row : *rows) ++begins[((row.name - low) >> shift) + 1];
  for (size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
  std::vector<Named> sorted(count);
  std::vector<size_t> next(begins.begin(), begins.end() - 1);
  for (const Named& row : *rows) sorted[next[(row.name - low) >> shift]++] = row;
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    if (begins[i + 1] - begins[i] < 2) continue;
    const auto begin = sorted.begin() + static_cast<ptrdiff_t>(begins[i]);
    const auto end = sorted.begin() + static_cast<ptrdiff_t>(begins[i + 1]);
    if (!std::is_sorted(begin, end)) std::sort(begin, end);
  }
  rows->swap(sorted);
}

// The rows of several lists, found by their index among all of them.
class Lists {
 public:
  Lists(std::span<const RowList> lists, size_t row_bytes) : lists_(lists), row_bytes_(row_bytes) {
    begins_.reserve(lists.size());
    for (const RowList& list : lists) {
      begins_.push_back(total_);
      total_ += list.ids.size();
    }
  }
  size_t total() const { return total_; }
  const void* At(uint64_t at) const {
    size_t list = 0;
    if (begins_.size() > 1) {
      list = static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), at) -
                                 begins_.begin()) -
             1;
    }
    return static_cast<const std::byte*>(lists_[list].values) + (at - begins_[list]) * row_bytes_;
  }

 private:
  std::span<const RowList> lists_;
  const size_t row_bytes_;
  std::vector<uint64_t> begins_;
  size_t total_ = 0;
};

std::vector<Named> SortedRows(std::span<const RowList> lists, size_t total, uint64_t row_count,
                              RowOrder order) {
  std::vector<Named> rows;
  rows.reserve(total);
  for (const RowList& list : lists) {
    for (const int64_t id : list.ids) {
      const auto name = static_cast<uint64_t>(id);
      if (name >= row_count) {
        throw Fail(Code::kOutOfRange, "id {}, the key has ids below {}", static_cast<int64_t>(name),
                   row_count);
      }
      rows.push_back({order == RowOrder::kMix ? Mix(name) : name, rows.size()});
    }
  }
  Sort(&rows);
  return rows;
}

}  // namespace

SparseSum SparseSum::Of(std::span<const RowList> lists, uint64_t row_count, DType dtype,
                        size_t row_elements, RowOrder order, Memory memory) {
  const Lists from(lists, row_elements * ItemSize(dtype));
  const std::vector<Named> rows = SortedRows(lists, from.total(), row_count, order);
  SparseSum sum;
  sum.dtype_ = ComputeType(dtype);
  sum.row_elements_ = row_elements;
  sum.names_.reserve(rows.size());
  for (const Named& row : rows) {
    if (sum.names_.empty() || sum.names_.back() != row.name) sum.names_.push_back(row.name);
  }
  const bool is_each_once = sum.names_.size() == rows.size();
  sum.has_sums_ = !is_each_once;
  if (!is_each_once && !IsArithmetic(dtype)) {
    throw Fail(Code::kInvalidArgument, "two rows of one id; {} values cannot be summed",
               Name(dtype));
  }
  if (is_each_once && memory == Memory::kBorrow && sum.dtype_ == dtype) {
    sum.borrowed_.reserve(rows.size());
    for (const Named& row : rows) sum.borrowed_.push_back(from.At(row.at));
    return sum;
  }
  const size_t row_bytes = row_elements * ItemSize(sum.dtype_);
  sum.values_ = NewRowMemory(std::max<size_t>(sum.size() * row_bytes, 1));
  std::byte* target = sum.values_.data;
  std::vector<const void*> sources;
  for (size_t i = 0; i < rows.size(); target += row_bytes) {
    sources.clear();
    const uint64_t name = rows[i].name;
    for (; i < rows.size() && rows[i].name == name; ++i) {
      sources.push_back(from.At(rows[i].at));
      if (i + kRowsAhead < rows.size()) __builtin_prefetch(from.At(rows[i + kRowsAhead].at));
    }
    if (sources.size() == 1 && sum.dtype_ == dtype) {
      std::memcpy(target, sources[0], row_bytes);
    } else {
      kernels::Sum(dtype, sources, target, row_elements, kernels::Write::kCached);
    }
  }
  return sum;
}

SparseSum SparseSum::OfSorted(std::vector<uint64_t> names, const std::byte* values, DType dtype,
                              size_t row_elements, Memory memory) {
  SparseSum sum;
  sum.dtype_ = ComputeType(dtype);
  sum.row_elements_ = row_elements;
  sum.names_ = std::move(names);
  if (sum.names_.empty()) return sum;
  if (memory == Memory::kBorrow && sum.dtype_ == dtype) {
    sum.lent_ = values;
    return sum;
  }
  const size_t count = sum.size() * row_elements;
  sum.values_ = NewRowMemory(std::max<size_t>(count * ItemSize(sum.dtype_), 1));
  if (sum.dtype_ == dtype) {
    std::memcpy(sum.values_.data, values, count * ItemSize(dtype));
  } else {
    const void* const source[] = {values};
    kernels::Sum(dtype, source, sum.values_.data, count, kernels::Write::kCached);
  }
  return sum;
}

SparseSum SparseSum::Merge(const SparseSum& a, const SparseSum& b) {
  if (a.size() == 0) return b;
  if (b.size() == 0) return a;
  SparseSum sum;
  sum.dtype_ = a.dtype_;
  sum.row_elements_ = a.row_elements_;
  sum.names_.reserve(a.size() + b.size());
  std::set_union(a.names_.begin(), a.names_.end(), b.names_.begin(), b.names_.end(),
                 std::back_inserter(sum.names_));
  sum.has_sums_ = a.has_sums_ || b.has_sums_ || sum.size() < a.size() + b.size();
  const RowSource from_a = a.values(), from_b = b.values();
  const size_t row_bytes = from_a.row_bytes;
  sum.values_ = NewRowMemory(std::max<size_t>(sum.size() * row_bytes, 1));
  size_t at_a = 0, at_b = 0;
  for (size_t i = 0; i < sum.size(); ++i) {
    std::byte* const target = sum.values_.data + i * row_bytes;
    const bool has_a = at_a < a.size() && a.names_[at_a] == sum.names_[i];
    const bool has_b = at_b < b.size() && b.names_[at_b] == sum.names_[i];
    if (has_a && has_b) {
      const void* const both[] = {from_a.at(at_a++), from_b.at(at_b++)};
      kernels::Sum(sum.dtype_, both, target, sum.row_elements_, kernels::Write::kCached);
    } else {
      std::memcpy(target, has_a ? from_a.at(at_a++) : from_b.at(at_b++), row_bytes);
    }
  }
  return sum;
}

}  // namespace tkv
