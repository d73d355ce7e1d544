#include "store/local_compression.h"

#include <algorithm>
#include <cstring>

#include "base/format.h"
#include "codec/codec.h"
#include "kernels/kernels.h"
#include "update/parallel.h"

namespace tkv {
namespace {

// Elements that are compressed together, like a chunk in a distributed store.
constexpr size_t kBlock = size_t{256} << 10;
constexpr size_t kTile = 2 * kEncodedElements;

// A value of a key: its gradients and its residuals before and after the push.
struct Value {
  codec::Gradients gradients;
  const std::vector<float>* before;
  float* residual;
};

void Begin(const Value& value, size_t begin, size_t end) {
  float* const target = value.residual + begin;
  if (value.before == nullptr || value.before->empty()) {
    std::fill(target, value.residual + end, 0.0F);
  } else {
    std::memcpy(target, value.before->data() + begin, (end - begin) * sizeof(float));
  }
}

size_t AddTiled(const kernels::Coding& coding, const Value& value, size_t begin, size_t end,
                kernels::Into into, float* sum) {
  alignas(64) std::byte bytes[kernels::EncodedBytes(Encoding::kF16, kTile)];
  size_t lost = 0;
  for (size_t at = begin; at < end; at += kTile) {
    const size_t length = std::min(kTile, end - at);
    lost += codec::EncodeRange(coding, value.gradients, at, at + length, value.residual, bytes);
    kernels::Decode(coding, bytes, sum + at, length, into);
  }
  return lost;
}

size_t AddLargest(size_t most, const Value& value, size_t begin, size_t end, float* sum) {
  const size_t lost = codec::AddRange(value.gradients, begin, end, value.residual);
  std::vector<std::byte> bytes(most * 8);
  const size_t taken = codec::TakeLargest(value.residual + begin, end - begin, most, bytes.data());
  const codec::Part part{Encoding::kTopK, 0, {bytes.data(), taken * 8, nullptr}};
  codec::AddAt(part, codec::PositionsOf(part, end - begin), sum + begin);
  return lost;
}

// Adds a value uncompressed, with all of its residuals.
void AddAll(const Value& value, size_t begin, size_t end, bool is_first, float* sum) {
  const DType dtype = value.gradients.dtype;
  float wide[kTile];
  for (size_t at = begin; at < end; at += kTile) {
    const size_t length = std::min(kTile, end - at);
    const void* const gradient =
        static_cast<const std::byte*>(value.gradients.arrays[0]) + at * ItemSize(dtype);
    kernels::Sum(dtype, {&gradient, 1}, wide, length, kernels::Write::kCached);
    const void* const parts[] = {wide, value.residual + at, sum + at};
    kernels::Sum(DType::kF32, {parts, is_first ? size_t{2} : size_t{3}}, sum + at, length,
                 kernels::Write::kCached);
  }
}

// Sums the decompressed elements [begin, end) of all values and stores the new residuals.  Returns
// how many elements were not finite.
size_t SumBlock(const codec::Compressor& compressor, std::span<const Value> values, size_t begin,
                size_t end, float* sum) {
  size_t lost = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    Begin(values[i], begin, end);
    const bool is_first = i == 0;
    if (compressor.encoding == Encoding::kTopK) {
      if (is_first) std::fill(sum + begin, sum + end, 0.0F);
      lost += AddLargest(compressor.Most(end - begin), values[i], begin, end, sum);
    } else if (compressor.encoding == Encoding::kDense) {
      AddAll(values[i], begin, end, is_first, sum);
    } else {
      lost += AddTiled(compressor.coding(), values[i], begin, end,
                       is_first ? kernels::Into::kWrite : kernels::Into::kAdd, sum);
    }
  }
  return lost;
}

}  // namespace

void LocalCompression::Owed::Keep() && {
  for (auto& [entry, residual] : residuals) entry->residuals = std::move(residual);
}

void LocalCompression::Set(const Compression& compression, const std::string& keys) {
  compressions_.Set(compression, keys);
  any_ = true;
}

void LocalCompression::WarnOfLost(std::string_view verb, size_t lost, const StoreOptions& options) {
  if (!options.log || has_warned_.exchange(true)) return;
  options.log(2, Format("{}: {} elements are not finite; compressed, they count as 0 but for fp16 "
                        "and bf16 (said once)",
                        verb, lost));
}

LocalCompression::Plan LocalCompression::Planned(std::span<Entry* const> entries) const {
  Plan plan(entries.size());
  for (size_t g = 0; g < entries.size(); ++g) {
    if (entries[g]->by_rows()) continue;
    const codec::Compressor compressor = compressions_.For(entries[g]->key.view());
    const bool is_dense = compressor.encoding == Encoding::kDense;
    if (!is_dense || !entries[g]->residuals.empty()) plan[g] = compressor;
  }
  return plan;
}

LocalCompression::Owed LocalCompression::Apply(std::string_view verb,
                                               std::span<Entry* const> entries, const Plan& plan,
                                               Sources* sources, int threads) {
  Owed owed;
  sources->bases.resize(entries.size());
  for (size_t g = 0; g < entries.size(); ++g) {
    Entry& entry = *entries[g];
    if (!plan[g] || sources->of(g).empty()) continue;
    const codec::Compressor& compressor = *plan[g];
    const bool is_dense = compressor.encoding == Encoding::kDense;
    const DType dtype = entry.value.dtype();
    codec::CheckCompressible(verb, entry.key.view(), dtype);
    const auto arrays = sources->of(g);
    const auto count = static_cast<size_t>(entry.value.size());
    std::vector<std::vector<float>> after(std::max(arrays.size(), entry.residuals.size()));
    std::vector<Value> values;
    for (size_t i = 0; i < arrays.size(); ++i) {
      after[i].resize(count);
      const bool is_owed = i < entry.residuals.size();
      values.push_back({{dtype, arrays.subspan(i, 1)},
                        is_owed ? &entry.residuals[i] : nullptr,
                        after[i].data()});
    }
    // If an earlier push had more values, the residuals of the others stay.
    for (size_t i = arrays.size(); i < after.size(); ++i) after[i] = entry.residuals[i];
    const NDArray base = NDArray::Empty(entry.value.shape(), DType::kF32);
    auto* const sum = static_cast<float*>(base.data());
    std::atomic<size_t> lost = 0;
    ParallelFor(threads, (count + kBlock - 1) / kBlock, 1, [&](size_t, size_t begin, size_t end) {
      for (size_t block = begin; block < end; ++block) {
        lost += SumBlock(compressor, values, block * kBlock, std::min(count, (block + 1) * kBlock),
                         sum);
      }
    });
    owed.lost += lost;
    if (is_dense) {  // the values of this push leave no residuals
      for (size_t i = 0; i < arrays.size(); ++i) after[i] = std::vector<float>();
      const auto is_empty = [](const std::vector<float>& rest) { return rest.empty(); };
      if (std::all_of(after.begin(), after.end(), is_empty)) after.clear();
    }
    sources->bases[g] = base;
    owed.residuals.emplace_back(&entry, std::move(after));
  }
  return owed;
}

}  // namespace tkv
