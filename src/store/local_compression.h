// Gradient compression of a store of one process whose values stand for several devices.  Each
// value of a push is compressed separately, as if it had to be sent.  The store sums the
// decompressed values.

#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/compress.h"
#include "store/gather.h"
#include "store/key_table.h"
#include "tkv/kvstore.h"

namespace tkv {

// The compression settings of a store, and the sums of compressed values.
class LocalCompression {
 public:
  // The residuals of values after a call.  They take effect only when Keep is called, after the
  // call has ended well.
  struct Owed {
    std::vector<std::pair<Entry*, std::vector<std::vector<float>>>> residuals;
    size_t lost = 0;  // number of elements that were not finite
    void Keep() &&;
  };

  //   throws  kInvalidArgument
  void Set(const Compression& compression, const std::string& keys);
  // The compression of each key of a call.  A key without compression that has residuals is in it
  // too, with the dense encoding.  Null: the key's values are summed unchanged.  Empty: no key is
  // compressed.  Decided once for a call, so that later settings do not affect it.
  using Plan = std::vector<std::optional<codec::Compressor>>;
  Plan PlanOf(std::span<Entry* const> entries) const { return any_ ? Planned(entries) : Plan(); }
  // Sets the base of each compressed group: the sum of its decompressed values.
  //   entries  the entries of the groups, and of the plan
  //   throws   kInvalidArgument  a dtype that cannot be compressed
  static Owed Apply(std::string_view verb, std::span<Entry* const> entries, const Plan& plan,
                    Sources* sources, int threads);
  // Warns of elements that were not finite, once.
  //   lost  number of these elements
  void WarnOfLost(std::string_view verb, size_t lost, const StoreOptions& options);

 private:
  Plan Planned(std::span<Entry* const> entries) const;

  codec::Compressions compressions_;
  std::atomic<bool> any_ = false;  // a compression has been set
  std::atomic<bool> has_warned_ = false;
};

}  // namespace tkv
