// The worker's half of compression: the choice of keys and the encoding of their gradients.

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

// A validated Compression.
struct Compressor {
  Encoding encoding = Encoding::kDense;
  float threshold = 0;
  double ratio = 0;

  kernels::Coding coding() const { return {encoding, threshold}; }
  // Returns the most elements that topk sends of a chunk of `count`.  A part has at most
  // kPartBytesMax bytes.
  size_t Most(size_t count) const;
};

// The compressions of a store's keys.  Thread-safe.
class Compressions {
 public:
  // Sets the compression of the keys whose text matches the pattern (base/wildcard.h).  If several
  // patterns match a key, the last one that was set counts.
  //   throws  kInvalidArgument  an unknown type, or a number out of its range
  void Set(const Compression& compression, const std::string& pattern);
  Compressor For(const KeyView& key) const;

 private:
  struct Rule {
    std::string pattern;
    Compressor compressor;
  };
  mutable std::mutex mutex_;
  std::vector<Rule> rules_;  // the last matching rule counts
};

// Throws unless values of this dtype are computed in f32; only those can be compressed.
//   throws  kInvalidArgument  the message names the verb and the key
void CheckCompressible(std::string_view verb, const KeyView& key, DType dtype);

// The residual of a key: the part of its gradients that has not been sent.
struct Residual {
  std::mutex mutex;
  std::vector<float> values;       // one for each element; empty: nothing is left
  std::atomic<bool> owes = false;  // false: nothing is left; also read without the mutex
};

// The values of a push of one key, of a dtype whose compute type is f32.
struct Gradients {
  DType dtype = DType::kF32;
  std::span<const void* const> arrays;  // summed from left to right
};

// Encodes the elements [begin, end) in a tiled encoding; begin is a multiple of kEncodedElements.
//   shape    residual: f32; target: the bytes from the element `begin` on
//   returns  number of elements that were not finite
size_t EncodeRange(const kernels::Coding& coding, const Gradients& gradients, size_t begin,
                   size_t end, float* residual, std::byte* target);
// Adds the elements [begin, end) to the residual.  TakeLargest then chooses the elements to send.
//   returns  as EncodeRange
size_t AddRange(const Gradients& gradients, size_t begin, size_t end, float* residual);

// Takes the `most` elements of largest magnitude out of a residual; of equal ones the first.
// Writes their positions, ascending, and then their values.  Zeros are never sent.
//   shape    residual: f32, `count`, finite; target: 8 bytes for each of `most`
//   returns  number of elements taken
size_t TakeLargest(float* residual, size_t count, size_t most, std::byte* target);

}  // namespace tkv::codec
