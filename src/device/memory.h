// Memory of a device, and of the host that it reaches, kept to use again.

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

enum class BlockKind : uint8_t {
  kDevice,
  kPinned,  // of the host, where the device copies from and to without staging
};

// The driver's own allocation takes as long as a small kernel, and its release waits for the whole
// device, so blocks are kept until memory runs out.  Thread-safe.
class BlockCache final {
 public:
  BlockCache(Device* device, BlockKind kind) : device_(*device), kind_(kind) {}

  // A block of at least so many bytes, at a multiple of 256; of the host, nothing uses it any more.  Where
  // there is no memory for it all that is kept goes back to the driver first, once.
  //   blocks  for what uses kept memory, where all of it goes back
  //   throws  kResourceExhausted, kUnavailable, kInternal, kDeadlineExceeded, what the interrupt throws
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
