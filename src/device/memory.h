// Memory of a device, kept to use again.

#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "device/driver.h"
#include "tkv/pending.h"

namespace tkv {

class Device;

struct BlockUse {
  cuda::Address address = 0;
  // What may still use the memory when the block is taken again; its next user comes after it.
  std::vector<PendingUse> pending;
};

// A block is a node of the cache, so that giving it back needs no memory.  The key is its size in bytes.
using KeptBlock = std::multimap<size_t, BlockUse>::node_type;

// The driver's own allocation takes as long as a small kernel, and its release waits for the whole
// device, so blocks are kept until memory runs out.  Thread-safe.
class BlockCache final {
 public:
  explicit BlockCache(Device* device) : device_(*device) {}

  // A block of at least so many bytes, at a multiple of 256.  Where the device has no memory for it all
  // that is kept goes back to the driver first, once.
  //   blocks  for what uses kept memory, where all of it goes back
  //   throws  kResourceExhausted, kUnavailable
  KeptBlock Take(size_t bytes);
  void Give(KeptBlock block) noexcept;

  size_t kept_bytes() const;

 private:
  KeptBlock FindKept(size_t bytes);
  cuda::Result Allocate(size_t bytes, cuda::Address* address);
  void Flush();

  Device& device_;
  mutable std::mutex mutex_;
  std::multimap<size_t, BlockUse> kept_;
};

}  // namespace tkv
