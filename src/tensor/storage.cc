#include "tkv/storage.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <list>
#include <optional>
#include <thread>

#include "base/format.h"
#include "base/process.h"
#include "base/round_up.h"
#include "device/device.h"

namespace tkv {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

// Maps large blocks directly: they start on a huge page, read as zeros, and return to the system
// when they are freed.
void* MapHuge(size_t bytes) {
  const size_t span = RoundUp(bytes, kHugePage) + kHugePage;
  void* base = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  char* const start = static_cast<char*>(base);
  char* const data =
      start + (kHugePage - reinterpret_cast<uintptr_t>(start) % kHugePage) % kHugePage;
  char* const end = data + RoundUp(bytes, kHugePage);
  if (data > start) munmap(start, static_cast<size_t>(data - start));
  if (start + span > end) munmap(end, static_cast<size_t>(start + span - end));
  madvise(data, static_cast<size_t>(end - data), MADV_HUGEPAGE);
  return data;
}

void FreeOnHost(void* data, size_t bytes) {
  if (bytes >= kHugePage) {
    munmap(data, RoundUp(bytes, kHugePage));
  } else {
    std::free(data);
  }
}

}  // namespace

// A block from a device's cache.  The destructor returns it, with the operations that still use it.
class DeviceBlock final {
 public:
  DeviceBlock(BlockCache* cache, size_t bytes) : cache_(*cache), block_(cache->Take(bytes)) {}
  ~DeviceBlock() { cache_.Give(std::move(block_)); }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;

  void* data() const {
    return reinterpret_cast<void*>(block_.mapped().address);  // NOLINT(performance-no-int-to-ptr)
  }
  std::vector<PendingUse>& pending() { return block_.mapped().pending; }

 private:
  BlockCache& cache_;
  KeptBlock block_;
};

// The loan of foreign device memory.
class DeviceLoan final {
 public:
  // The owner of memory whose storage was destroyed, and the operations that still use the memory.
  struct Kept {
    std::shared_ptr<const void> owner;
    std::vector<PendingUse> pending;
  };

  std::list<Kept> kept{1};  // allocated early, so that keeping the owner needs no memory
  std::optional<Stream> owner_stream;
  std::thread::id owner_thread;  // the thread, if it is a per-thread default stream
};

Storage::Storage(Private /*key*/, void* data, size_t bytes, bool owned, bool read_only,
                 std::shared_ptr<const void> owner)
    : data_(data),
      bytes_(bytes),
      owned_(owned),
      read_only_(read_only),
      owner_(std::move(owner)),
      foreign_(!owned),
      uses_birth_(ForkGeneration()) {}

std::shared_ptr<Storage> Storage::Allocate(size_t bytes, Memory memory) {
  if (memory.kind != Memory::Kind::kHost) return AllocateByDevice(bytes, memory);
  void* data = nullptr;
  if (bytes >= kHugePage) {
    data = bytes > (size_t{1} << 62) ? nullptr : MapHuge(bytes);
  } else {
    data = std::aligned_alloc(kAlignment, RoundUp(std::max<size_t>(bytes, 1), kAlignment));
  }
  if (data == nullptr) {
    throw Fail(Code::kResourceExhausted, "allocate: the system has no {} bytes of memory", bytes);
  }
  try {
    return std::make_shared<Storage>(Private(), data, bytes, true, false, nullptr);
  } catch (...) {
    FreeOnHost(data, bytes);
    throw;
  }
}

std::shared_ptr<Storage> Storage::AllocateByDevice(size_t bytes, Memory memory) {
  ReleaseOwners();
  Device& device = Device::Get(memory.index);
  const bool is_pinned = memory.kind == Memory::Kind::kPinned;
  auto block =
      std::make_unique<DeviceBlock>(is_pinned ? &device.pinned_blocks() : &device.blocks(), bytes);
  auto storage = std::make_shared<Storage>(Private(), block->data(), bytes, true, false, nullptr);
  storage->memory_ = memory;
  storage->uses_ = std::move(block->pending());
  storage->has_pending_.store(!storage->uses_.empty(), std::memory_order_release);
  storage->block_ = std::move(block);
  return storage;
}

std::shared_ptr<Storage> Storage::Adopt(void* data, size_t bytes, bool read_only,
                                        std::shared_ptr<const void> owner, Memory memory) {
  auto storage =
      std::make_shared<Storage>(Private(), data, bytes, false, read_only, std::move(owner));
  if (memory.kind == Memory::Kind::kDevice) {
    ReleaseOwners();
    storage->memory_ = memory;
    storage->loan_ = std::make_unique<DeviceLoan>();
  }
  return storage;
}

Storage::~Storage() {
  if (loan_ != nullptr) ReturnLoan();
  if (!owned_) return;
  if (block_ != nullptr) {
    if (uses_birth_.load() == ForkGeneration()) block_->pending() = std::move(uses_);
    return;
  }
  FreeOnHost(data_, bytes_);
}

// ---- hazards ------------------------------------------------------------------------------------

namespace {

bool StandsInTheWay(bool use_writes, Access access) {
  return use_writes || access == Access::kWrite;
}

// The operations of this process on arrays that may still run, for WaitAll, and the owners of
// foreign device memory that these operations use.
class Registry {
 public:
  const unsigned birth = ForkGeneration();

  void Add(const std::shared_ptr<Pending>& operation) {
    // Destroyed after the lock is released.  An operation may have the last handle on foreign
    // memory; destroying that runs foreign code, which may use arrays.
    std::vector<std::shared_ptr<Pending>> seen;
    std::lock_guard lock(mutex_);
    if (!all_.empty()) {  // an operation on several arrays is registered once
      seen.push_back(all_.back().lock());
      if (seen.back() == operation) return;
    }
    if (all_.size() >= tidy_at_) {
      seen.reserve(seen.size() + all_.size());
      std::erase_if(all_, [&](const auto& weak) {
        auto old = weak.lock();
        if (old == nullptr) return true;
        return seen.emplace_back(std::move(old))->done();
      });
      tidy_at_ = std::max(kTidyAt, 2 * all_.size());
    }
    all_.push_back(operation);
  }
  void Forget(const std::shared_ptr<Pending>& operation) {
    std::lock_guard lock(mutex_);
    std::erase_if(all_, [&](const auto& weak) {
      return !weak.owner_before(operation) && !operation.owner_before(weak);
    });
  }
  // Calls f with a lock, for a step that a new process runs once and all its threads must see.
  template <typename F>
  void Once(F f) {
    std::lock_guard lock(once_);
    f();
  }
  std::vector<std::weak_ptr<Pending>> Take() {
    std::lock_guard lock(mutex_);
    return all_;
  }
  void Keep(std::list<DeviceLoan::Kept> one) noexcept {
    std::lock_guard lock(mutex_);
    kept_.splice(kept_.end(), one);
  }
  // Takes the owners of memory that is no longer used.  The caller destroys them without the lock.
  // A look at an owner may ask its device, and most operations end in the order in which they
  // began.  So only some calls look, and only at the first owners; when their number has doubled, a
  // call looks at all of them.
  std::list<DeviceLoan::Kept> TakeFree(bool of_all) {
    std::list<DeviceLoan::Kept> taken;
    std::lock_guard lock(mutex_);
    of_all = of_all || kept_.size() >= look_at_all_;
    if (!of_all && calls_to_skip_ > 0) {
      --calls_to_skip_;
      return taken;
    }
    for (auto next = kept_.begin(); next != kept_.end();) {
      const auto one = next++;
      if (HaveEnded(one->pending)) {
        taken.splice(taken.end(), kept_, one);
      } else if (!of_all) {
        calls_to_skip_ = kept_.size() / 8;
        return taken;
      }
    }
    look_at_all_ = std::max(kTidyAt, 2 * kept_.size());
    calls_to_skip_ = 0;
    return taken;
  }

 private:
  static constexpr size_t kTidyAt = 64;
  std::mutex once_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Pending>> all_;
  size_t tidy_at_ = kTidyAt;
  std::list<DeviceLoan::Kept> kept_;
  size_t look_at_all_ = kTidyAt;
  size_t calls_to_skip_ = 0;
};

// The registry is never destroyed, because arrays may be used until the process ends.  A child of
// fork() gets a new one: the operations are the parent's, and a thread of the parent may hold the
// lock.
Registry& AllOperations() {
  static std::atomic<Registry*> current{new Registry};
  Registry* registry = current.load();
  if (registry->birth == ForkGeneration()) return *registry;
  auto fresh = std::make_unique<Registry>();
  if (current.compare_exchange_strong(registry, fresh.get())) registry = fresh.release();
  return *registry;
}

}  // namespace

void Storage::ReleaseOwners() { AllOperations().TakeFree(false); }

void Storage::ReturnLoan() noexcept {
  if (uses_birth_.load() != ForkGeneration()) return;
  DeviceLoan::Kept& kept = loan_->kept.front();
  kept.owner = std::move(owner_);
  kept.pending = std::move(uses_);
  const bool is_free = std::all_of(kept.pending.begin(), kept.pending.end(),
                                   [](const auto& use) { return use.operation->is_known_done(); });
  if (!is_free) AllOperations().Keep(std::move(loan_->kept));
  ReleaseOwners();
}

// Takes the uses that are known to have ended.  Also takes those that end with a later use that
// conflicts with at least the same accesses.
Storage::Uses Storage::TakeEnded() {
  Uses taken;
  for (size_t i = 0; i < uses_.size();) {
    const auto covers = [&](const PendingUse& later) {
      return (later.writes || !uses_[i].writes) &&
             uses_[i].operation->IsCoveredBy(*later.operation);
    };
    const auto one = uses_.begin() + static_cast<ptrdiff_t>(i);
    if (uses_[i].operation->is_known_done() || std::any_of(one + 1, uses_.end(), covers)) {
      taken.push_back(std::move(*one));
      uses_.erase(one);
    } else {
      ++i;
    }
  }
  has_pending_.store(!uses_.empty(), std::memory_order_release);
  return taken;
}

// Locks the storage.  A child of fork() starts with an empty list and a new mutex, because a thread
// of the parent may have held the lock and changed the list.
std::unique_lock<std::mutex> Storage::Lock() {
  if (uses_birth_.load(std::memory_order_acquire) != ForkGeneration()) {
    AllOperations().Once([this] {
      if (uses_birth_.load(std::memory_order_relaxed) == ForkGeneration()) return;
      new (&mutex_) std::mutex;
      new (&uses_) Uses;  // the old list belongs to the parent, so it is not destroyed
      has_pending_.store(false, std::memory_order_relaxed);
      uses_birth_.store(ForkGeneration(), std::memory_order_release);
    });
  }
  return std::unique_lock(mutex_);
}

bool Storage::Add(const std::shared_ptr<Pending>& operation, Access access) {
  const bool writes = access == Access::kWrite;
  Uses ended;  // destroyed without the lock: it may have the last handles on other arrays
  const auto lock = Lock();
  const bool is_refused = foreign() && !writes;
  if (is_refused && loan_ == nullptr && block_ == nullptr) return false;
  // Removing ended uses bounds the list: running operations of the host, and a few uses per stream
  // of a device.
  ended = TakeEnded();
  uses_.push_back({operation, writes});
  has_pending_.store(true, std::memory_order_release);
  return !is_refused;
}

bool Storage::AddReader(const std::shared_ptr<Pending>& reader) {
  Enters(reader);
  return Add(reader, Access::kRead);
}

void Storage::AddWriter(const std::shared_ptr<Pending>& writer) {
  Enters(writer);
  Add(writer, Access::kWrite);
}

void Storage::Enters(const std::shared_ptr<Pending>& operation) { AllOperations().Add(operation); }

void Storage::Enter(const std::shared_ptr<Pending>& operation, Access access) {
  Add(operation, access);
}

void Storage::ThrowNotOfHost() {
  throw Fail(Code::kFailedPrecondition, "array: the memory is a device's, not the host's");
}

Storage::Uses Storage::UsesNow() {
  Uses ended;  // dropped without the lock
  const auto lock = Lock();
  ended = TakeEnded();
  return uses_;
}

void Storage::Wait(Access access, std::chrono::nanoseconds patience) {
  for (const PendingUse& use : UsesNow()) {
    // A use that is done needs no wait: Wait would throw if its device was lost later, although
    // this memory is not affected.
    if (StandsInTheWay(use.writes, access) && !use.operation->done()) use.operation->Wait(patience);
  }
}

std::shared_ptr<Pending> Storage::OrderPending(Stream* stream, Access access) {
  if (IsOrdered(stream, access)) return nullptr;
  for (PendingUse& use : UsesNow()) {
    if (!StandsInTheWay(use.writes, access) || use.operation->Order(stream)) continue;
    if (!use.operation->done()) return std::move(use.operation);
  }
  return nullptr;
}

bool Storage::IsOrdered(const Stream* stream, Access access) {
  const auto lock = Lock();
  return std::all_of(uses_.begin(), uses_.end(), [&](const PendingUse& use) {
    return !StandsInTheWay(use.writes, access) || use.operation->IsBefore(stream);
  });
}

bool Storage::FindInTheWay(Access access) {
  const auto lock = Lock();
  return IsInTheWay(access);
}

bool Storage::IsInTheWay(Access access) const {
  return std::any_of(uses_.begin(), uses_.end(), [&](const PendingUse& use) {
    return StandsInTheWay(use.writes, access) && !use.operation->done();
  });
}

void Storage::MarkForeign(Access access, std::chrono::nanoseconds patience) {
  for (;;) {
    if (has_pending_.load(std::memory_order_acquire)) Wait(access, patience);
    const auto lock = Lock();
    if (IsInTheWay(access)) continue;  // another thread has started an operation meanwhile
    foreign_.store(true, std::memory_order_release);
    return;
  }
}

void Storage::ShareWith(Stream* stream, Access access, std::chrono::nanoseconds patience) {
  while (const auto in_the_way = [&]() -> std::shared_ptr<Pending> {
    const EnqueueLock lock;  // later registrations of other threads see the storage as foreign
    if (auto found = Order(stream, access)) return found;
    stream->device().CheckUsable();  // a lost device does not order anything
    ShareWithoutWaiting();
    return nullptr;
  }()) {
    in_the_way->Wait(patience);
  }
}

void Storage::SetOwnerStream(uint64_t stream) {
  loan_->owner_stream.emplace(&Device::Get(memory_.index), stream);
  loan_->owner_thread = std::this_thread::get_id();
}

Stream* Storage::owner_stream() const noexcept {
  if (loan_ == nullptr || !loan_->owner_stream) return nullptr;
  Stream& stream = *loan_->owner_stream;
  const bool is_here =
      !stream.is_of_each_thread() || loan_->owner_thread == std::this_thread::get_id();
  return is_here ? &stream : nullptr;
}

void WaitAll(std::chrono::nanoseconds patience) {
  std::optional<Error> lost;  // thrown at the end, after all other operations were awaited
  for (const auto& weak : AllOperations().Take()) {
    const auto operation = weak.lock();
    if (operation == nullptr) continue;
    try {
      operation->Wait(patience);
    } catch (const Error& error) {
      if (error.code() != Code::kUnavailable) throw;
      AllOperations().Forget(operation);
      if (!lost) lost = error;
    }
  }
  AllOperations().TakeFree(true);
  if (lost) throw Error(*lost);
}

}  // namespace tkv
