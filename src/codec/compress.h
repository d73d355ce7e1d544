// The worker's half of compression: which keys are compressed to what, and gradients made into
// contributions.

#pragma once

#include <atomic>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "kernels/encode.h"
#include "tkv/compression.h"
#include "tkv/dtype.h"
#include "tkv/key.h"

namespace tkv::codec {

// A Compression that has been looked at.
struct Compressor {
  Encoding encoding = Encoding::kDense;
  float threshold = 0;
  double ratio = 0;

  kernels::Coding coding() const { return {encoding, threshold}; }
  // Elements of a chunk of `count` that topk sends at most; no part has more than kPartBytesMax bytes.
  size_t Most(size_t count) const;
};

// Which compression the keys of a store have.  Thread-safe.
class Compressions {
 public:
  // For the keys whose text matches the pattern (base/wildcard.h), and no longer what was said of them before.
  //   throws  kInvalidArgument  an unknown type, a number out of its range
  void Set(const Compression& compression, const std::string& pattern);
  Compressor For(const KeyView& key) const;

 private:
  struct Rule {
    std::string pattern;
    Compressor compressor;
  };
  mutable std::mutex mutex_;
  std::vector<Rule> rules_;  // the last that matches counts
};

// Only values that are computed in f32 can be compressed.
//   throws  kInvalidArgument  naming verb and key
void CheckCompressible(std::string_view verb, const KeyView& key, DType dtype);

// Of the gradients of one key: what has not been sent.
struct Residual {
  std::mutex mutex;
  std::vector<float> values;       // one for each element; none: nothing is left
  std::atomic<bool> owes = false;  // some may be left; also read without the mutex
};

// The values of one push of one key, of a dtype whose compute type is f32.
struct Gradients {
  DType dtype = DType::kF32;
  std::span<const void* const> arrays;  // summed from left to right
};

// Encodes the elements [begin, end) of a tiled encoding; begin is a multiple of kEncodedElements.
//   shape    residual: f32; target: where the bytes of the element `begin` lie
//   returns  elements that were not finite
size_t EncodeRange(const kernels::Coding& coding, const Gradients& gradients, size_t begin,
                   size_t end, float* residual, std::byte* target);
// Adds the elements [begin, end) to the residual, of which others are chosen afterwards.
//   returns  as EncodeRange
size_t AddRange(const Gradients& gradients, size_t begin, size_t end, float* residual);

// Takes the `most` elements of largest magnitude, the first of equal ones, from a residual: writes
// their positions, ascending, and then their values.  Zeros are never sent.
//   shape    residual: f32, `count`, finite; target: 8 bytes for each of `most`
//   returns  how many were taken
size_t TakeLargest(float* residual, size_t count, size_t most, std::byte* target);

}  // namespace tkv::codec
