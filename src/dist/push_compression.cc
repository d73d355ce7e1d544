#include "dist/push_compression.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/format.h"
#include "dist/scratch.h"
#include "update/parallel.h"
#include "update/tile_driver.h"

namespace tkv {
namespace {

constexpr size_t kTile = 2 * kEncodedElements;
constexpr size_t kChosenBytes = sizeof(uint32_t) + sizeof(float);

codec::Gradients GradientsOf(const std::vector<NDArray>& values,
                             std::vector<const void*>* pointers) {
  for (const NDArray& value : values) pointers->push_back(value.data());
  return {values[0].dtype(), *pointers};
}

}  // namespace

void PushCompression::Set(const Compression& compression, const std::string& keys) {
  compressions_.Set(compression, keys);
  is_set_ = true;
}

void PushCompression::Plan(std::string_view verb, PushSource* source) const {
  if (!is_set_ || source->record->info.by_rows) return;
  const KeyRecord& record = *source->record;
  source->compressor = compressions_.For(record.key.view());
  const bool is_dense = source->compressor.encoding == Encoding::kDense;
  if (!is_dense) codec::CheckCompressible(verb, record.key.view(), record.info.dtype);
  if (!is_dense && record.residual == nullptr) {
    record.residual = std::make_shared<codec::Residual>();
  }
  const bool owes = record.residual != nullptr && record.residual->owes;
  if (!is_dense || owes) source->residual = record.residual;
}

// All memory is allocated first: after that the call can no longer fail, and residuals may change.
void PushCompression::Compress(std::vector<PushSource>* sources) {
  for (PushSource& source : *sources) {
    if (source.residual == nullptr) continue;
    const NDArray& value = source.packed[0];
    const auto count = static_cast<size_t>(value.size());
    const Encoding encoding = source.compressor.encoding;
    if (encoding == Encoding::kDense) {
      source.array = NDArray::Empty(value.shape(), ComputeType(value.dtype()));
      continue;
    }
    size_t bytes = kernels::EncodedBytes(encoding, count);
    if (encoding == Encoding::kTopK) {
      const KeyMeta& meta = *source.record->meta;
      for (uint32_t c = 0; c < meta.chunk_count(); ++c) {
        bytes += source.compressor.Most(static_cast<size_t>(meta.elements_of(c))) * kChosenBytes;
      }
    }
    source.array = BytesOf(bytes);
    std::lock_guard lock(source.residual->mutex);
    source.residual->values.resize(count);
  }
  for (PushSource& source : *sources) {
    if (source.residual != nullptr) Encode(&source);
  }
}

void PushCompression::Encode(PushSource* source) {
  std::vector<const void*> pointers;
  const codec::Gradients gradients = GradientsOf(source->packed, &pointers);
  const auto count = static_cast<size_t>(source->packed[0].size());
  const int threads = ThreadsFor(threads_);
  const kernels::Coding coding = source->compressor.coding();
  size_t lost = 0;
  std::lock_guard lock(source->residual->mutex);
  std::vector<float>& residual = source->residual->values;
  source->is_own = true;
  // The push carries the whole residual.
  if (coding.encoding == Encoding::kDense) {
    TileJob job;
    job.dtype = gradients.dtype;
    job.count = count;
    job.base = residual.empty() ? nullptr : residual.data();
    job.sources = pointers;
    job.value = source->array.data();
    job.is_wide = true;
    RunJobs({&job, 1}, threads);
    source->Take(source->array);
    residual = std::vector<float>();  // frees the memory, too
    source->residual->owes = false;
    source->packed.clear();
    return;
  }
  // A push without compression may have freed the residual meanwhile.
  residual.resize(count);
  source->residual->owes = true;
  if (coding.encoding == Encoding::kTopK) {
    EncodeLargest(source, &lost);
  } else {
    auto* const target = static_cast<std::byte*>(source->array.data());
    std::atomic<size_t> all_lost = 0;
    const size_t tiles = (count + kTile - 1) / kTile;
    constexpr size_t kGrain = 32;  // 256 KiB of float32
    ParallelFor(tiles > kGrain ? threads : 1, tiles, kGrain, [&](size_t, size_t begin, size_t end) {
      const size_t first = begin * kTile;
      all_lost += codec::EncodeRange(coding, gradients, first, std::min(count, end * kTile),
                                     residual.data(),
                                     target + kernels::EncodedBytes(coding.encoding, first));
    });
    lost = all_lost;
    codec::Contribution& encoded = source->encoded.emplace();
    encoded.encoding = coding.encoding;
    encoded.bytes = MemoryOf(source->array);
    if (coding.encoding == Encoding::k2Bit || coding.encoding == Encoding::k1Bit) {
      encoded.param = std::bit_cast<uint32_t>(coding.threshold);
    }
  }
  source->packed.clear();
  if (lost > 0) WarnOfLost(*source, lost);
}

// Chooses the largest elements chunk by chunk, because each chunk has a share of its own.
void PushCompression::EncodeLargest(PushSource* source, size_t* lost) const {
  std::vector<const void*> pointers;
  const codec::Gradients gradients = GradientsOf(source->packed, &pointers);
  const KeyMeta& meta = *source->record->meta;
  float* const residual = source->residual->values.data();
  auto* const target = static_cast<std::byte*>(source->array.data());
  const uint32_t chunks = meta.chunk_count();
  std::vector<size_t> begins(chunks + 1), places(chunks + 1), taken(chunks);
  for (uint32_t c = 0; c < chunks; ++c) {
    const auto elements = static_cast<size_t>(meta.elements_of(c));
    begins[c + 1] = begins[c] + elements;
    places[c + 1] = places[c] + source->compressor.Most(elements) * kChosenBytes;
  }
  std::atomic<size_t> all_lost = 0;
  const bool is_small = begins.back() * sizeof(float) < size_t{1} << 20;
  ParallelFor(
      is_small ? 1 : ThreadsFor(threads_), chunks, 1, [&](size_t, size_t begin, size_t end) {
        for (size_t c = begin; c < end; ++c) {
          const size_t elements = begins[c + 1] - begins[c];
          all_lost += codec::AddRange(gradients, begins[c], begins[c + 1], residual);
          taken[c] = codec::TakeLargest(residual + begins[c], elements,
                                        source->compressor.Most(elements), target + places[c]);
        }
      });
  *lost = all_lost;
  codec::Contribution& encoded = source->encoded.emplace();
  encoded.encoding = Encoding::kTopK;
  encoded.bytes = MemoryOf(source->array);
  encoded.ends.resize(chunks);
  size_t used = 0;
  for (uint32_t c = 0; c < chunks; ++c) {
    const size_t bytes = taken[c] * kChosenBytes;
    if (used != places[c]) std::memmove(target + used, target + places[c], bytes);
    encoded.ends[c] = used += bytes;
  }
  encoded.bytes.size = used;
}

void PushCompression::WarnOfLost(const PushSource& source, size_t lost) {
  if (has_warned_.exchange(true) || !log_) return;
  const bool is_sent =
      source.compressor.encoding == Encoding::kF16 || source.compressor.encoding == Encoding::kBf16;
  log_(2,
       Format("push {}: {} elements are not finite; {}", source.record->key.view().ToString(), lost,
              is_sent ? "they are sent as they are" : "compressed, they count as 0 (said once)"));
}

}  // namespace tkv
