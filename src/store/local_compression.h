// Gradient compression of a store of one process that stands for several devices: each value of a
// push is compressed by itself, as if it had to travel, and the store sums what would arrive.

#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "codec/compress.h"
#include "store/gather.h"
#include "store/key_table.h"

namespace tkv {

class LocalCompression {
 public:
  // What values still owe when a call has ended well; nothing changes before Keep.
  struct Owed {
    std::vector<std::pair<Entry*, std::vector<std::vector<float>>>> residuals;
    size_t lost = 0;  // elements that were not finite
    void Keep() &&;
  };

  //   throws  kInvalidArgument
  void Set(const Compression& compression, const std::string& keys);
  // Whether some key has, or has had, a compression.
  bool any() const { return any_; }
  // Whether values of the key are compressed, or owe something from when they were.
  bool Covers(const Entry& entry) const;
  // Gives the groups whose keys are compressed a base: the sum of what arrives of their values.
  //   shape   entries: those of the groups
  //   throws  kInvalidArgument  a dtype that cannot be compressed
  Owed Apply(std::string_view verb, std::span<Entry* const> entries, Sources* sources,
             int threads) const;

 private:
  codec::Compressions compressions_;
  std::atomic<bool> any_ = false;
};

}  // namespace tkv
