#include "codec/compress.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/format.h"
#include "base/nearest.h"
#include "base/wildcard.h"
#include "kernels/kernels.h"
#include "wire/message.h"

namespace tkv::codec {
namespace {

struct Named {
  std::string_view name;
  Encoding encoding;
};
constexpr Named kTypes[] = {{"none", Encoding::kDense}, {"fp16", Encoding::kF16},
                            {"bf16", Encoding::kBf16},  {"int8", Encoding::kInt8},
                            {"2bit", Encoding::k2Bit},  {"1bit", Encoding::k1Bit},
                            {"topk", Encoding::kTopK}};

Encoding EncodingOf(const std::string& type) {
  std::vector<std::string_view> names;
  std::string list;
  for (const Named& named : kTypes) {
    if (named.name == type) return named.encoding;
    list += list.empty() ? "" : ", ";
    list += named.name;
    names.push_back(named.name);
  }
  const std::string_view near = Nearest(type, names);
  throw Fail(Code::kInvalidArgument, "set_gradient_compression: no type '{}'{}; there are {}", type,
             near.empty() ? "" : Format(", did you mean '{}'?", near), list);
}

Compressor Look(const Compression& compression) {
  Compressor compressor{EncodingOf(compression.type), 0, 0};
  if (compressor.encoding == Encoding::k2Bit || compressor.encoding == Encoding::k1Bit) {
    compressor.threshold = static_cast<float>(compression.threshold);
    const bool is_right = std::isfinite(compressor.threshold) &&
                          (compressor.encoding == Encoding::k1Bit || compressor.threshold > 0);
    if (!is_right) {
      throw Fail(Code::kInvalidArgument, "set_gradient_compression: {} with threshold {}{}",
                 compression.type, compression.threshold,
                 compressor.encoding == Encoding::k1Bit ? ", a finite number is needed"
                                                        : ", a number above 0 is needed");
    }
  }
  if (compressor.encoding == Encoding::kTopK) {
    compressor.ratio = compression.ratio;
    if (!(compression.ratio > 0 && compression.ratio <= 1)) {
      throw Fail(Code::kInvalidArgument,
                 "set_gradient_compression: topk with ratio {}, a number above 0 and at most 1 is "
                 "needed",
                 compression.ratio);
    }
  }
  return compressor;
}

std::string TextOf(const KeyView& key) {
  return key.is_string ? std::string(key.text) : Format("{}", key.number);
}

constexpr size_t kTile = 2 * kEncodedElements;

// Calls f(at, length, gradient) for tiles of [begin, end), with the sum of the arrays in f32.
template <typename F>
void ForTiles(const Gradients& gradients, size_t begin, size_t end, F f) {
  alignas(64) float sum[kTile];
  std::vector<const void*> tiles(gradients.arrays.size());
  const bool is_one = tiles.size() == 1 && gradients.dtype == DType::kF32;
  for (size_t at = begin; at < end; at += kTile) {
    const size_t length = std::min(kTile, end - at);
    if (is_one) {
      f(at, length, static_cast<const float*>(gradients.arrays[0]) + at);
      continue;
    }
    for (size_t i = 0; i < tiles.size(); ++i) {
      tiles[i] =
          static_cast<const std::byte*>(gradients.arrays[i]) + at * ItemSize(gradients.dtype);
    }
    kernels::Sum(gradients.dtype, tiles, sum, length, kernels::Write::kCached);
    f(at, length, sum);
  }
}

uint32_t MagnitudeBits(float value) { return std::bit_cast<uint32_t>(value) & 0x7FFFFFFFU; }

// The magnitude of the `most`-th largest element, and the number of elements to take that have
// exactly this magnitude.
struct Limit {
  uint32_t bits = 0;
  size_t equal = 0;
};

Limit LimitOf(const float* values, size_t count, size_t most) {
  constexpr int kShift = 20;  // 11 bits: the exponent, and the first three of the fraction
  std::array<size_t, size_t{1} << (31 - kShift)> bins{};
  for (size_t i = 0; i < count; ++i) ++bins[MagnitudeBits(values[i]) >> kShift];
  size_t left = most;
  uint32_t bin = static_cast<uint32_t>(bins.size()) - 1;
  while (bin > 0 && bins[bin] < left) left -= bins[bin--];
  std::vector<uint32_t> inside;
  inside.reserve(bins[bin]);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = MagnitudeBits(values[i]);
    if (bits >> kShift == bin) inside.push_back(bits);
  }
  if (inside.empty()) return {};
  left = std::min(left, inside.size());
  const auto at = inside.begin() + static_cast<ptrdiff_t>(left - 1);
  std::nth_element(inside.begin(), at, inside.end(), std::greater<>());
  Limit limit{*at, left};
  for (auto it = inside.begin(); it != at; ++it) limit.equal -= static_cast<size_t>(*it > *at);
  return limit;
}

}  // namespace

size_t Compressor::Most(size_t count) const {
  if (encoding != Encoding::kTopK) return 0;
  constexpr size_t kMost = kPartBytesMax / (sizeof(uint32_t) + sizeof(float));
  const auto wanted = static_cast<size_t>(std::ceil(ratio * static_cast<double>(count)));
  return std::min({count, wanted, kMost});
}

void Compressions::Set(const Compression& compression, const std::string& pattern) {
  Rule rule{pattern, Look(compression)};
  std::lock_guard lock(mutex_);
  std::erase_if(
      rules_, [&](const Rule& old) { return rule.pattern == "*" || old.pattern == rule.pattern; });
  rules_.push_back(std::move(rule));
}

Compressor Compressions::For(const KeyView& key) const {
  std::lock_guard lock(mutex_);
  if (rules_.empty()) return {};
  const std::string text = TextOf(key);
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (MatchesWildcard(rule->pattern, text)) return rule->compressor;
  }
  return {};
}

void CheckCompressible(std::string_view verb, const KeyView& key, DType dtype) {
  if (ComputeType(dtype) == DType::kF32) return;
  throw Fail(Code::kInvalidArgument,
             "{} {}: {} values cannot be compressed; set_gradient_compression with type none for "
             "this key leaves it out",
             verb, key.ToString(), tkv::Name(dtype));
}

size_t EncodeRange(const kernels::Coding& coding, const Gradients& gradients, size_t begin,
                   size_t end, float* residual, std::byte* target) {
  size_t lost = 0;
  ForTiles(gradients, begin, end, [&](size_t at, size_t length, const float* gradient) {
    lost += kernels::Encode(coding, gradient, residual + at,
                            target + kernels::EncodedBytes(coding.encoding, at - begin), length);
  });
  return lost;
}

size_t AddRange(const Gradients& gradients, size_t begin, size_t end, float* residual) {
  size_t lost = 0;
  ForTiles(gradients, begin, end, [&](size_t at, size_t length, const float* gradient) {
    lost += kernels::AddToResidual(gradient, residual + at, length);
  });
  return lost;
}

size_t TakeLargest(float* residual, size_t count, size_t most, std::byte* target) {
  if (most == 0) return 0;
  const Limit limit = LimitOf(residual, count, most);
  std::vector<uint32_t> positions;
  std::vector<float> values;
  positions.reserve(most);
  values.reserve(most);
  size_t equal = limit.equal;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = MagnitudeBits(residual[i]);
    if (bits < limit.bits || bits == 0) continue;
    if (bits == limit.bits) {
      if (equal == 0) continue;
      --equal;
    }
    positions.push_back(static_cast<uint32_t>(i));
    values.push_back(residual[i]);
    residual[i] = 0;
  }
  if (positions.empty()) return 0;
  std::memcpy(target, positions.data(), positions.size() * sizeof(uint32_t));
  std::memcpy(target + positions.size() * sizeof(uint32_t), values.data(),
              values.size() * sizeof(float));
  return positions.size();
}

}  // namespace tkv::codec
