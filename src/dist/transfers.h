// The values of one key on their way from a worker to the servers, or back.

#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "codec/compress.h"
#include "codec/rows.h"
#include "dist/key_record.h"
#include "job/call.h"
#include "tkv/ndarray.h"

namespace tkv {

class GpuLandings;
class GpuSums;

// Returns the memory of a packed array.
inline Bytes MemoryOf(const NDArray& array) {
  return {static_cast<const std::byte*>(array.HostData()), array.bytes(), array.storage()};
}

inline Block BlockOf(const NDArray& array) {
  return {static_cast<std::byte*>(array.HostData()), array.bytes(), array.storage()};
}

// The values of one key on their way to servers: their sum as one contiguous array, or its
// encoded form.
struct PushSource {
  RecordPtr record;
  NDArray array;
  // The number of arrays that the user has given.
  size_t values = 0;
  size_t bytes = 0;  // for rows, the bytes of these arrays
  // The bytes to send are a copy, a sum or an encoding, and not the user's array.
  bool is_own = false;
  codec::Compressor compressor = {};
  // The residual of the key, if its pushes are or were compressed.
  std::shared_ptr<codec::Residual> residual = {};
  std::vector<NDArray> packed = {};  // the values, if there is a residual
  std::optional<codec::Contribution> encoded = {};
  std::optional<std::vector<double>> scalars = {};
  uint64_t rule = 0;  // with scalars: UpdateSpec::Digest of the optimizer; 0: not sent
  // The new value of KeyRecord::params_sent_for after the launch; 0: it stays.
  uint64_t params_sent_for = 0;
  int priority = 0;
  PushStep step = {};
  // For values on GPUs: their sum arrives from there after the call has begun.
  std::shared_ptr<GpuSums> gpus = {};
  size_t gpu_sum = 0;

  // Makes a sum that the worker has computed the value to push.  A sum of 16-bit values stays
  // float32, and the server rounds it once.
  void Take(const NDArray& sum) {
    array = sum;
    is_own = true;
    if (sum.dtype() == record->info.dtype) return;
    encoded.emplace().encoding = Encoding::kF32;
    encoded->bytes = MemoryOf(sum);
  }
};

// The array in which a pull of one key arrives, and the outputs that are filled from it.
struct PullTarget {
  RecordPtr record;
  NDArray landing;
  // Outputs other than the landing itself, without those on GPUs.
  std::vector<NDArray> outs;
  int priority = 0;
  size_t bytes = 0;  // the bytes that the user gets
  // For a table: every id that an output asks for, once, in the order of the wire.
  codec::Contribution ids = {};
  std::shared_ptr<const codec::IdOrder> order = {};
  std::vector<size_t> out_ends = {};  // for each output the end of its ids in `order`
  bool is_shared = false;             // every output gets all rows
  // The GPU outputs of the whole call, if there are any.
  std::shared_ptr<GpuLandings> gpus = {};
  bool lands_for_gpus = false;  // this key has GPU outputs
};

// Returns the keys of the items of a call.
template <typename Item>
std::vector<KeyView> KeysOf(std::span<const Item> items) {
  std::vector<KeyView> keys;
  keys.reserve(items.size());
  for (const Item& item : items) keys.push_back(item.key);
  return keys;
}

// Returns the push of a value.  The call keeps the memory that it reads.
Operation::Push PushOf(const PushSource& source, const CallPtr& call);
// Returns the pull into a target.  The call keeps the memory that it writes.
Operation::Pull PullOf(const PullTarget& target, const CallPtr& call);
// Sets the work to do when all values have arrived.  From now on, users of outputs on GPUs wait for
// it.
void PrepareFinish(const CallPtr& call, std::vector<PullTarget> targets,
                   std::chrono::nanoseconds patience);
// Returns the arrays of the user that the targets write to.
std::vector<NDArray> OutputsOf(const std::vector<PullTarget>& targets);

}  // namespace tkv
