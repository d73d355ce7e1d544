// Compression of gradients with error feedback: the part of a gradient that an encoding cannot
// represent stays in a residual, which is added to the next gradient.
//
// Formats, little-endian, of `count` elements:
//   f32        4 bytes an element: x, which leaves no residual; only Decode has it
//   f16, bf16  2 bytes an element: x rounded to nearest even, a finite x at most to the largest
//              finite number
//   int8       for each 1,024 elements a scale (f32): max |x| / 127, but at most the largest scale
//              whose 127-fold is finite; then one signed byte an element, x / scale rounded to
//              nearest even.  A scale that would be subnormal is 0
//   2bit       threshold t > 0; 2 bits an element, the first in the top bits of a byte: 11 for
//              x >= t, read as t; 10 for x <= -t, read as -t; 00, read as 0; granules of 4 bytes
//   1bit       threshold t; 1 bit an element, the first in the top bit of a byte: 1 for x > t, read
//              as 1; 0, read as -1; granules of 4 bytes
// Here x is residual + gradient, limited to the largest finite float32.  After encoding, the
// residual is x minus the decoded value.
//   source  MXNet 1.9.1 and 2.0, src/kvstore/gradient_compression-inl.h (2bit, 1bit)

#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/encoding.h"

namespace tkv::kernels {

// An encoding and its threshold, if it has one.
struct Coding {
  Encoding encoding = Encoding::kDense;
  float threshold = 0;
  bool operator==(const Coding&) const = default;
};

// Returns the size of `count` elements in a tiled encoding other than dense.
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

// Encodes residual + gradient and keeps the rest in the residual.  A gradient that is not finite
// counts as 0.  In f16 and bf16 it is sent unchanged, and the residual stays.
//   shape    gradient, residual: f32, the residual finite; target: EncodedBytes
//   returns  gradients that were not finite
size_t Encode(const Coding& coding, const float* gradient, float* residual, void* target,
              size_t count);

// Decodes to target[i], or adds to target[i].
//   shape  source: EncodedBytes, any bytes; target: f32
enum class Into : uint8_t { kWrite, kAdd };
void Decode(const Coding& coding, const void* source, float* target, size_t count, Into into);

// Adds gradients to the residual, for encodings that choose elements afterwards.  A gradient that
// is not finite counts as 0.
//   returns  gradients that were not finite
size_t AddToResidual(const float* gradient, float* residual, size_t count);

}  // namespace tkv::kernels
