#include "base/buffer.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/arena.h"
#include "base/format.h"
#include "base/round_up.h"

namespace tkv {
namespace {

constexpr size_t kAlignment = 64;

}  // namespace

struct BufferPool::State {
  explicit State(size_t max) : cache_bytes_max(max) {}
  ~State() {
    for (auto& [size, blocks] : free) {
      for (void* block : blocks) std::free(block);
    }
  }

  void Release(void* data, size_t bytes, size_t capacity) noexcept {
    in_use.fetch_sub(bytes, std::memory_order_relaxed);
    if (capacity >= kCachedFrom && !closed.load(std::memory_order_relaxed)) {
      std::lock_guard lock(mutex);
      if (cached + capacity <= cache_bytes_max) {
        if (Keep(data, capacity)) return;
      }
    }
    std::free(data);
  }

  // Keeps a block for later use.  Returns false if there is no memory to remember it.
  bool Keep(void* data, size_t capacity) noexcept {
    try {
      free[capacity].push_back(data);
    } catch (const std::bad_alloc&) {
      return false;
    }
    cached += capacity;
    return true;
  }

  void* Take(size_t capacity) {
    std::lock_guard lock(mutex);
    const auto found = free.find(capacity);
    if (found == free.end() || found->second.empty()) return nullptr;
    void* const block = found->second.back();
    found->second.pop_back();
    cached -= capacity;
    return block;
  }

  const size_t cache_bytes_max;
  std::atomic<size_t> in_use{0};
  std::atomic<bool> closed{false};
  std::mutex mutex;
  size_t cached = 0;
  std::unordered_map<size_t, std::vector<void*>> free;  // by capacity
};

BufferPool::BufferPool(std::shared_ptr<Arena> arena, size_t cache_bytes_max)
    : state_(std::make_shared<State>(cache_bytes_max)), arena_(std::move(arena)) {}

BufferPool::~BufferPool() { state_->closed = true; }

Block BufferPool::Allocate(size_t bytes) {
  const size_t capacity = bytes >= kCachedFrom ? RoundUp(bytes, kPage)
                                               : RoundUp(std::max<size_t>(bytes, 1), kAlignment);
  if (arena_ != nullptr && capacity >= kCachedFrom) {
    if (const Block block = arena_->Allocate(bytes)) {
      state_->in_use.fetch_add(bytes, std::memory_order_relaxed);
      return {block.data, bytes, std::shared_ptr<void>(block.data, [state = state_, block](void*) {
                state->in_use.fetch_sub(block.size, std::memory_order_relaxed);
              })};
    }
  }
  void* data = capacity >= kCachedFrom ? state_->Take(capacity) : nullptr;
  if (data == nullptr && bytes < (size_t{1} << 62)) data = std::aligned_alloc(kAlignment, capacity);
  if (data == nullptr) {
    throw Fail(Code::kResourceExhausted, "allocate: the system has no {} bytes of memory", bytes);
  }
  state_->in_use.fetch_add(bytes, std::memory_order_relaxed);
  return {static_cast<std::byte*>(data), bytes,
          std::shared_ptr<void>(data, [state = state_, bytes, capacity](void* block) {
            state->Release(block, bytes, capacity);
          })};
}

size_t BufferPool::bytes_in_use() const noexcept {
  return state_->in_use.load(std::memory_order_relaxed);
}

}  // namespace tkv
