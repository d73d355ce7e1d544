#include "tensor/device_work.h"

#include <optional>
#include <utility>

#include "base/duration.h"
#include "base/format.h"

namespace tkv {
namespace {

// Runs f; the name of the work begins its errors.
template <typename F>
void Naming(const StreamUse& use, F f) {
  NamedBy([&] { return use.name ? use.name() : ""; }, f);
}

// Calls f(storage, access) for all memory of the work.
template <typename F>
void ForStorages(const StreamUse& use, F f) {
  for (const auto& storage : use.reads) f(storage.get(), Access::kRead);
  for (const auto& storage : use.writes) f(storage.get(), Access::kWrite);
}

// Waits on the host for uses of foreign memory whose stream is unknown.
void WaitForOthers(const StreamUse& use, std::chrono::nanoseconds patience) {
  ForStorages(use, [&](Storage* storage, Access access) {
    if (!storage->foreign() || storage->owner_stream() != nullptr) return;
    access == Access::kRead ? storage->WaitReadable(patience) : storage->WaitWritable(patience);
  });
}

// Makes the stream of the work wait for conflicting uses of its memory.
//   returns  the first use for which only the host can wait; null: there is none
std::shared_ptr<Pending> Order(const StreamUse& use) {
  std::shared_ptr<Pending> in_the_way;
  ForStorages(use, [&](Storage* storage, Access access) {
    if (in_the_way == nullptr) in_the_way = storage->Order(use.stream, access);
  });
  return in_the_way;
}

void Enter(std::span<const StreamUse> uses) {
  try {
    for (const StreamUse& use : uses) {
      Storage::Enters(use.done);
      ForStorages(use, [&](Storage* storage, Access access) { storage->Enter(use.done, access); });
    }
  } catch (...) {
    for (const StreamUse& use : uses) use.done->Abandon();
    throw;
  }
}

struct InTheWay {
  std::shared_ptr<Pending> operation;
  const StreamUse* of = nullptr;
};

// Registers the work, or returns the use for which the host has to wait first.
std::optional<InTheWay> TryToEnter(std::span<const StreamUse> uses) {
  const EnqueueLock lock;
  for (const StreamUse& use : uses) {
    std::shared_ptr<Pending> operation;
    Naming(use, [&] { operation = Order(use); });
    if (operation != nullptr) return InTheWay{std::move(operation), &use};
  }
  Enter(uses);
  return std::nullopt;
}

}  // namespace

Storages StoragesOf(std::span<const NDArray> arrays) {
  Storages storages;
  storages.reserve(arrays.size());
  for (const NDArray& array : arrays) storages.push_back(array.storage());
  return storages;
}

void EnterTogether(std::span<const StreamUse> uses, std::chrono::nanoseconds patience) {
  for (const StreamUse& use : uses) {
    Naming(use, [&] { WaitForOthers(use, patience); });
  }
  const auto deadline = DeadlineAfter(patience);
  while (const auto in_the_way = TryToEnter(uses)) {
    Naming(*in_the_way->of, [&] {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= left.zero()) {
        throw Fail(Code::kDeadlineExceeded, "give a GPU work: its arrays were in use for {} s",
                   std::chrono::duration<double>(patience).count());
      }
      in_the_way->operation->Wait(left);
    });
  }
}

DeviceWork::DeviceWork(Stream* stream, std::span<const NDArray> reads,
                       std::span<const NDArray> writes, std::chrono::nanoseconds patience)
    : use_{stream, StoragesOf(reads), StoragesOf(writes),
           std::make_shared<Event>(&stream->device())} {
  EnterTogether({&use_, 1}, patience);
}

// Returns true if the streams of all foreign users wait for the work, so that the host need not.
// Each stream waits once.
bool DeviceWork::TheirStreamsWait() noexcept {
  bool all_wait = true;
  Stream* last = nullptr;
  ForStorages(use_, [&](const Storage* storage, Access) {
    if (!storage->foreign()) return;
    Stream* const theirs = storage->owner_stream();
    if (theirs != nullptr && last != nullptr && *theirs == *last) return;
    if (theirs != nullptr && use_.done->Order(theirs)) {
      last = theirs;
    } else {
      all_wait = false;
    }
  });
  return all_wait;
}

void DeviceWork::Recorded() noexcept {
  const bool all_wait = TheirStreamsWait();
  others_left_ = !all_wait && !use_.is_awaited;
  if (all_wait || others_left_ || use_.done->EndsWithin(kHazardPatience, {})) return;
  use_.stream->device().Lose("end work on memory of others", cuda::Result::kLaunchTimeout);
}

DeviceWork::~DeviceWork() { use_.done->Abandon(); }

}  // namespace tkv
