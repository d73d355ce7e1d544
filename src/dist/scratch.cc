#include "dist/scratch.h"

#include <algorithm>

#include "base/round_up.h"

namespace tkv {
namespace {

constexpr size_t kStep = size_t{1} << 20;

// Returns true if only the pool has a handle of the array.  New handles are made only by Take,
// under the lock.  Uses by former handles happened before, as with Block::unique.
bool IsFree(const NDArray& array) {
  if (array.storage().use_count() != 1) return false;
  std::shared_ptr<Storage>(array.storage()).reset();
  return true;
}

}  // namespace

size_t Scratch::Kept() const {
  size_t bytes = 0;
  for (const NDArray& array : kept_) bytes += array.bytes();
  return bytes;
}

size_t Scratch::kept_bytes() const {
  std::lock_guard lock(mutex_);
  return Kept();
}

NDArray Scratch::Take(size_t bytes) {
  if (bytes < kFrom || bytes > kKeptBytesMax) return BytesOf(bytes);
  std::lock_guard lock(mutex_);
  const auto fits = [&](const NDArray& array) {
    return array.bytes() >= bytes && array.bytes() / 2 <= bytes + kStep && IsFree(array);
  };
  auto found = std::find_if(kept_.begin(), kept_.end(), fits);
  if (found == kept_.end()) {
    const size_t whole = RoundUp(bytes, kStep);
    while (Kept() + whole > kKeptBytesMax) {  // the oldest first
      const auto idle = std::find_if(kept_.begin(), kept_.end(), IsFree);
      if (idle == kept_.end()) return BytesOf(bytes);
      kept_.erase(idle);
    }
    kept_.push_back(BytesOf(whole));
    found = kept_.end() - 1;
  }
  return found->Slice(0, static_cast<int64_t>(bytes));
}

}  // namespace tkv
