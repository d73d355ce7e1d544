#include "tensor/device_work.h"

#include <optional>
#include <utility>

#include "base/duration.h"
#include "base/format.h"

namespace tkv {
namespace {

// Errors of f begin with the name of the work.
template <typename F>
void Naming(const StreamUse& use, F f) {
  NamedBy([&] { return use.name ? use.name() : ""; }, f);
}

// Calls f(storage, access) for each array of the work.
template <typename F>
void ForArrays(const StreamUse& use, F f) {
  for (const NDArray& array : use.reads) f(array.storage().get(), Access::kRead);
  for (const NDArray& array : use.writes) f(array.storage().get(), Access::kWrite);
}

// What is given to a device then ends by itself, and the host waits for it without an interrupt.
void WaitForOthers(const StreamUse& use, std::chrono::nanoseconds patience) {
  ForArrays(use, [&](Storage* storage, Access access) {
    if (!storage->foreign() || storage->has_owner_stream()) return;
    access == Access::kRead ? storage->WaitReadable(patience) : storage->WaitWritable(patience);
  });
}

// Has the stream of the work wait for what is in its way.
//   returns  what only the host can wait for, the first of all that is; null: there is none
std::shared_ptr<Pending> Order(const StreamUse& use) {
  std::shared_ptr<Pending> in_the_way;
  ForArrays(use, [&](Storage* storage, Access access) {
    if (in_the_way == nullptr) in_the_way = storage->Order(use.stream, access);
  });
  return in_the_way;
}

void Enter(std::span<const StreamUse> uses) {
  try {
    for (const StreamUse& use : uses) {
      ForArrays(use, [&](Storage* storage, Access access) {
        access == Access::kRead ? void(storage->AddReader(use.done)) : storage->AddWriter(use.done);
      });
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

// Enters the work, or returns what the host has to wait for first.
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
    : use_{stream, reads, writes, std::make_shared<Event>(&stream->device())} {
  EnterTogether({&use_, 1}, patience);
}

void DeviceWork::Recorded() noexcept {
  bool all_wait = true;
  for (const auto& arrays : {use_.reads, use_.writes}) {
    for (const NDArray& array : arrays) {
      all_wait = array.storage()->LetOthersWait(use_.done.get()) && all_wait;
    }
  }
  others_left_ = !all_wait && !use_.is_awaited;
  if (all_wait || others_left_ || use_.done->EndsWithin(kHazardPatience, {})) return;
  use_.stream->device().Lose("end work on memory of others", cuda::Result::kLaunchTimeout);
}

DeviceWork::~DeviceWork() { use_.done->Abandon(); }

}  // namespace tkv
