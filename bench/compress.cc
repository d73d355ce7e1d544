// Runs compression kernels on one core, for bench/sparse.py.  Reads lines "NAME COUNT REPEATS" and
// answers each with the seconds of one pass.
//
//   copy BYTES_READ BYTES_WRITTEN  the limit of memory: the bytes read and written per element, in
//                                  the order in which the kernel needs them
//   encode, decode, decode_add, two_passes, topk ENCODING
//   scalar                         2bit as a loop over elements, as it is defined
//   bf16                           the cast alone

#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "codec/compress.h"
#include "kernels/encode.h"
#include "kernels/kernels.h"

namespace {

using namespace tkv;  // NOLINT(google-build-using-namespace): a program of one file

constexpr float kThreshold = 0.5F;

// Encodes 2bit one element at a time.
__attribute__((noinline)) void EncodeScalar(const float* gradient, float* residual, uint8_t* target,
                                            size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (i % 4 == 0) target[i / 4] = 0;
    residual[i] += gradient[i];
    const unsigned shift = 6 - 2 * (i % 4);
    if (residual[i] >= kThreshold) {
      target[i / 4] = static_cast<uint8_t>(target[i / 4] | 3U << shift);
      residual[i] -= kThreshold;
    } else if (residual[i] <= -kThreshold) {
      target[i / 4] = static_cast<uint8_t>(target[i / 4] | 2U << shift);
      residual[i] += kThreshold;
    }
  }
}

// Reads `gradient`, reads and writes `residual`, and writes a sixteenth of it to `target`: the
// memory traffic of 2bit without its arithmetic.
__attribute__((noinline)) void MoveLike2Bit(const float* gradient, float* residual, uint8_t* target,
                                            size_t count) {
  constexpr size_t kGranule = 64;
  for (size_t at = 0; at + kGranule <= count; at += kGranule) {
    for (size_t i = 0; i < kGranule; ++i) residual[at + i] += gradient[at + i];
    std::memcpy(target + at / 4, residual + at, kGranule / 4);
  }
}

struct Arrays {
  explicit Arrays(size_t count)
      : gradient(count), residual(count), sum(count), bytes(4 * count + 64) {
    for (size_t i = 0; i < count; ++i) {
      gradient[i] = static_cast<float>(i * 2654435761U % 2001) / 1000 - 1;
    }
  }
  std::vector<float> gradient, residual, sum;
  std::vector<std::byte> bytes;
};

Encoding EncodingOf(const std::string& name) {
  if (name == "f16") return Encoding::kF16;
  if (name == "bf16") return Encoding::kBf16;
  if (name == "int8") return Encoding::kInt8;
  return name == "1bit" ? Encoding::k1Bit : Encoding::k2Bit;
}

void Pass(const std::string& what, const std::string& encoding, Arrays* a) {
  const size_t count = a->gradient.size();
  const kernels::Coding coding{EncodingOf(encoding), kThreshold};
  auto* const bytes = a->bytes.data();
  if (what == "encode") {
    kernels::Encode(coding, a->gradient.data(), a->residual.data(), bytes, count);
  } else if (what == "scalar") {
    EncodeScalar(a->gradient.data(), a->residual.data(), reinterpret_cast<uint8_t*>(bytes), count);
  } else if (what == "limit_2bit") {
    MoveLike2Bit(a->gradient.data(), a->residual.data(), reinterpret_cast<uint8_t*>(bytes), count);
  } else if (what == "decode_add") {
    kernels::Decode(coding, bytes, a->sum.data(), count, kernels::Into::kAdd);
  } else if (what == "two_passes") {
    kernels::Decode(coding, bytes, a->residual.data(), count, kernels::Into::kWrite);
    const void* both[] = {a->sum.data(), a->residual.data()};
    kernels::Sum(DType::kF32, both, a->sum.data(), count, kernels::Write::kCached);
  } else if (what == "cast") {
    kernels::Convert(DType::kF32, a->gradient.data(), DType::kBF16, bytes, count);
  } else if (what ==
             "limit_cast") {  // reads 4 bytes and writes 2: a copy of three quarters as many
    kernels::Copy(a->gradient.data(), bytes, 3 * count, kernels::Write::kCached);
  } else if (what == "topk") {
    codec::Gradients gradients;
    const void* array = a->gradient.data();
    gradients.arrays = {&array, 1};
    constexpr size_t kChunk = size_t{256} << 10;
    for (size_t at = 0; at < count; at += kChunk) {
      const size_t end = std::min(count, at + kChunk);
      codec::AddRange(gradients, at, end, a->residual.data());
      codec::TakeLargest(a->residual.data() + at, end - at, (end - at) / 100, bytes);
    }
  }
}

}  // namespace

int main() {
  char what[32], encoding[32];
  size_t count = 0, repeats = 0;
  std::unique_ptr<Arrays> arrays;
  while (std::scanf("%31s %31s %zu %zu", what, encoding, &count, &repeats) == 4) {
    if (arrays == nullptr || arrays->gradient.size() != count) {
      arrays = std::make_unique<Arrays>(count);
      Pass("encode", encoding, arrays.get());
    }
    const auto begin = std::chrono::steady_clock::now();
    for (size_t i = 0; i < repeats; ++i) Pass(what, encoding, arrays.get());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("%.9f\n", seconds.count() / static_cast<double>(repeats));
    std::fflush(stdout);
  }
}
