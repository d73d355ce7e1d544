// Gradients in fewer bytes, with error feedback: what an encoding cannot say of a gradient stays in
// a residual, which is added to the next gradient.
//
// Formats, little-endian, of `count` elements:
//   f32        4 bytes an element: x, which leaves no residual; only Decode has it
//   f16, bf16  2 bytes an element: x rounded to nearest even, a finite x at most to the largest
//              finite number
//   int8       for each 1,024 elements a scale (f32), max |x| / 127 and at most what is finite 127
//              times, then one signed byte an element, x / scale rounded to nearest even; a scale that
//              would be subnormal is 0
//   2bit       threshold t > 0; 2 bits an element, the first in the top bits of a byte: 11 for
//              x >= t, read as t; 10 for x <= -t, read as -t; 00, read as 0; granules of 4 bytes
//   1bit       threshold t; 1 bit an element, the first in the top bit of a byte: 1 for x > t, read
//              as 1; 0, read as -1; granules of 4 bytes
// where x is residual + gradient, at most the largest finite float32.  The residual becomes x minus what is
// read.
//   source  MXNet 1.9.1 and 2.0, src/kvstore/gradient_compression-inl.h (2bit, 1bit)

#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/encoding.h"

namespace tkv::kernels {

// An encoding with its threshold, where it has one.
struct Coding {
  Encoding encoding = Encoding::kDense;
  float threshold = 0;
  bool operator==(const Coding&) const = default;
};

// Of a tiled encoding other than dense.
constexpr size_t EncodedBytes(Encoding encoding, size_t count) {
  switch (encoding) {
    case Encoding::kF32:
      return 4 * count;
    case Encoding::kF16:
    case Encoding::kBf16:
      return 2 * count;
    case Encoding::kInt8:
      return (count + kEncodedElements - 1) / kEncodedElements * sizeof(float) + count;
    case Encoding::k2Bit:
      return (count + 15) / 16 * 4;
    case Encoding::k1Bit:
      return (count + 31) / 32 * 4;
    default:
      return 0;
  }
}

// Encodes residual + gradient and keeps the rest in the residual.  A gradient that is not finite counts as 0;
// f16 and bf16 send it as it is, and the residual stays.
//   shape    gradient, residual: f32, the residual finite; target: EncodedBytes
//   returns  gradients that were not finite
size_t Encode(const Coding& coding, const float* gradient, float* residual, void* target,
              size_t count);

// target[i] = what is read, or target[i] += it.
//   shape  source: EncodedBytes, any bytes; target: f32
enum class Into : uint8_t { kWrite, kAdd };
void Decode(const Coding& coding, const void* source, float* target, size_t count, Into into);

// residual[i] += gradient[i], for encodings that choose elements afterwards, as Encode has it.
//   returns  gradients that were not finite
size_t AddToResidual(const float* gradient, float* residual, size_t count);

}  // namespace tkv::kernels
