// Compressed pushes: which keys are compressed and how, and the encoding of their values with the
// residuals that earlier pushes left.

#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dist/transfers.h"
#include "tkv/compression.h"
#include "tkv/kvstore.h"

namespace tkv {

// Thread-safe, except Plan.
class PushCompression {
 public:
  // Makes the compression of a store.
  //   threads  as StoreOptions::threads
  //   log      takes the warning that a push had elements that are not finite; may be empty
  PushCompression(int threads, std::function<void(int, const std::string&)> log)
      : threads_(threads), log_(std::move(log)) {}

  // Sets the compression of the keys that match the pattern, as KVStore::SetGradientCompression.
  //   throws  kInvalidArgument
  void Set(const Compression& compression, const std::string& keys);
  // Chooses the compressor of a push, and its residual.  A key that is no longer compressed keeps
  // its residual until the residual has been pushed.  Call with the store's lock.
  //   throws  kInvalidArgument  values of this dtype cannot be compressed
  void Plan(std::string_view verb, PushSource* source) const;
  // Encodes the sources that have a residual.
  //   throws  kResourceExhausted  residuals of some keys may have changed
  void Compress(std::vector<PushSource>* sources);

 private:
  void Encode(PushSource* source);
  void EncodeLargest(PushSource* source, size_t* lost) const;
  void WarnOfLost(const PushSource& source, size_t lost);

  const int threads_;
  const std::function<void(int, const std::string&)> log_;
  codec::Compressions compressions_;
  std::atomic<bool> is_set_ = false;  // for some keys, perhaps in the past
  std::atomic<bool> has_warned_ = false;
};

}  // namespace tkv
