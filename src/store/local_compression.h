// Gradient compression of a store of one process that stands for several devices: each value of a
// push is compressed by itself, as if it had to travel, and the store sums what would arrive.

#pragma once

#include <atomic>
#include <optional>
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
  // How the values of each key of a call are compressed, or have been so that they owe something; null: as
  // they are.  Decided once for the call, whatever is set meanwhile; empty: none is.
  using Plan = std::vector<std::optional<codec::Compressor>>;
  Plan PlanOf(std::span<Entry* const> entries) const { return any_ ? Planned(entries) : Plan(); }
  // Gives the groups whose keys are compressed a base: the sum of what arrives of their values.
  //   entries  those of the groups, and of the plan
  //   throws   kInvalidArgument  a dtype that cannot be compressed
  static Owed Apply(std::string_view verb, std::span<Entry* const> entries, const Plan& plan,
                    Sources* sources, int threads);

 private:
  Plan Planned(std::span<Entry* const> entries) const;

  codec::Compressions compressions_;
  std::atomic<bool> any_ = false;  // some key has, or has had, a compression
};

}  // namespace tkv
