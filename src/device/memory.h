// Caches of device memory, and of pinned host memory that the device can access.

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
  // Operations that may still use the memory when the block is taken again; the next user has to
  // wait for them.
  std::vector<PendingUse> pending;
};

// A block is a node of the cache, so that giving it back needs no memory.  Its key is the size in
// bytes.
using KeptBlock = std::multimap<size_t, BlockUse>::node_type;

enum class BlockKind : uint8_t {
  kDevice,
  kPinned,  // host memory that the device copies from and to without staging
};

// A cache of memory blocks.  Thread-safe.  Blocks are kept until memory runs out, because the
// driver's own allocation takes as long as a small kernel, and its release waits for the whole
// device.
class BlockCache final {
 public:
  BlockCache(Device* device, BlockKind kind) : device_(*device), kind_(kind) {}

  // Returns a block of at least `bytes`, aligned to 256.  No operation still uses a block of the
  // host.  If the driver has no memory left, first releases all kept blocks, once.
  //   blocks  for operations that use kept blocks, if all are released
  //   throws  kResourceExhausted, kUnavailable, kInternal, kDeadlineExceeded, what the interrupt
  //           throws
  KeptBlock Take(size_t bytes);
  void Give(KeptBlock block) noexcept;

  size_t kept_bytes() const;

 private:
  KeptBlock FindKept(size_t bytes);
  cuda::Result Allocate(size_t bytes, cuda::Address* address);
  void Release(cuda::Address address);
  [[noreturn]] void ThrowNoMemory(size_t bytes);
  void Flush();

  Device& device_;
  const BlockKind kind_;
  mutable std::mutex mutex_;
  std::multimap<size_t, BlockUse> kept_;
};

}  // namespace tkv
