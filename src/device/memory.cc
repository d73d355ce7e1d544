#include "device/memory.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "base/round_up.h"
#include "device/device.h"

namespace tkv {
namespace {

constexpr size_t kGranularity = 512;
constexpr size_t kBytesMax = size_t{1} << 62;

// Waits for the end of an operation.  If the operation's device, which may be another one, is lost,
// the operation has ended, too.
//   blocks, throws  as Pending::Wait
void AwaitEnd(Pending* operation) {
  try {
    operation->Wait(kHazardPatience);
  } catch (const Error& error) {
    if (error.code() != Code::kUnavailable || !operation->done()) throw;
  }
}

// A kept block is reused only if at most an eighth of the request is wasted.
size_t LargestFor(size_t bytes) { return bytes + bytes / 8; }

}  // namespace

KeptBlock BlockCache::FindKept(size_t bytes) {
  std::lock_guard lock(mutex_);
  for (auto found = kept_.lower_bound(bytes);
       found != kept_.end() && found->first <= LargestFor(bytes); ++found) {
    // On the device, the next use of a block waits there for the previous one.  Pinned memory would
    // make the host wait, so its blocks must be unused.
    if (kind_ == BlockKind::kDevice || HaveEnded(found->second.pending))
      return kept_.extract(found);
  }
  return {};
}

cuda::Result BlockCache::Allocate(size_t bytes, cuda::Address* address) {
  device_.CheckUsable();
  if (kind_ == BlockKind::kDevice) {
    return device_.Call(device_.driver().MemAlloc, address, bytes);
  }
  void* data = nullptr;
  const auto result =
      device_.Call(device_.driver().MemHostAlloc, &data, bytes, unsigned{cuda::kPortable});
  *address = reinterpret_cast<cuda::Address>(data);
  return result;
}

void BlockCache::Release(cuda::Address address) {
  if (kind_ == BlockKind::kDevice) {
    return device_.Do("release memory", device_.driver().MemFree, address);
  }
  void* const data = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  device_.Do("release pinned memory", device_.driver().MemFreeHost, data);
}

void BlockCache::ThrowNoMemory(size_t bytes) {
  if (kind_ == BlockKind::kPinned) {
    throw Fail(Code::kResourceExhausted,
               "allocate: the system has no {} bytes of memory that gpu({}) copies from and to",
               bytes, device_.index());
  }
  throw Fail(Code::kResourceExhausted, "allocate: gpu({}) has no {} bytes of memory: {} are free",
             device_.index(), bytes, device_.memory().free_bytes);
}

KeptBlock BlockCache::Take(size_t bytes) {
  if (bytes > kBytesMax) bytes = kBytesMax;  // more than any device has
  const size_t rounded = RoundUp(std::max<size_t>(bytes, 1), kGranularity);
  if (KeptBlock kept = FindKept(rounded)) return kept;
  std::multimap<size_t, BlockUse> made;  // created first, so that no failure can leak driver memory
  KeptBlock block = made.extract(made.emplace(rounded, BlockUse{}));
  cuda::Result result = Allocate(rounded, &block.mapped().address);
  if (result == cuda::Result::kOutOfMemory) {
    Flush();
    result = Allocate(rounded, &block.mapped().address);
  }
  if (result == cuda::Result::kOutOfMemory) ThrowNoMemory(bytes);
  device_.Check(result, "allocate");
  return block;
}

void BlockCache::Give(KeptBlock block) noexcept {
  if (!device_.is_usable()) return;
  std::erase_if(block.mapped().pending,
                [](const PendingUse& use) { return use.operation->is_known_done(); });
  std::lock_guard lock(mutex_);
  kept_.insert(std::move(block));
}

void BlockCache::Flush() {
  for (;;) {
    KeptBlock block;
    {
      std::lock_guard lock(mutex_);
      if (kept_.empty()) return;
      block = kept_.extract(kept_.begin());
    }
    try {
      for (const PendingUse& use : block.mapped().pending) AwaitEnd(use.operation.get());
    } catch (...) {
      Give(std::move(block));
      throw;
    }
    Release(block.mapped().address);
  }
}

size_t BlockCache::kept_bytes() const {
  std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const auto& [size, use] : kept_) bytes += size;
  return bytes;
}

}  // namespace tkv
