#include "job/gpu_ends.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/duration.h"
#include "base/memory_error.h"
#include "base/start_thread.h"
#include "device/event.h"
#include "job/call.h"

namespace tkv {
namespace {

constexpr std::chrono::microseconds kRest{50};

struct Ending {
  std::shared_ptr<Call> call;
  std::chrono::steady_clock::time_point deadline = DeadlineAfter(kHazardPatience);

  bool has_ended() const {
    return std::ranges::all_of(call->awaited,
                               [](const AwaitedWork& work) { return work.done->done(); });
  }
  bool is_late() const { return std::chrono::steady_clock::now() > deadline; }
  void Complete() const {
    std::optional<Error> failed;
    try {
      failed = Failure();
    } catch (const std::bad_alloc&) {
      failed = NoMemoryLeft();
    }
    call->Complete(failed);
  }

 private:
  std::optional<Error> Failure() const {
    std::optional<Error> failed;
    if (!has_ended()) {
      failed = Fail(Code::kDeadlineExceeded, "{} {}: a GPU has not written its outputs within {} s",
                    call->verb(), call->awaited[0].of,
                    std::chrono::duration<double>(kHazardPatience).count());
    }
    for (const AwaitedWork& work : call->awaited) {
      try {
        if (!failed) work.done->CheckUsable();
      } catch (const Error& error) {
        failed = Fail(error.code(), "{} {}: {}", call->verb(), work.of, error.what());
      }
    }
    return failed;
  }
};

class Endings {
 public:
  void Add(std::shared_ptr<Call> call) {
    const std::lock_guard lock(mutex_);
    if (!has_thread_) StartThread("wait for GPUs with", [this] { Run(); }).detach();
    has_thread_ = true;
    added_.push_back({std::move(call)});
    changed_.notify_one();
  }

 private:
  [[noreturn]] void Run() {
    std::vector<Ending> all;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        const auto is_there = [this] { return !added_.empty(); };
        all.empty() ? changed_.wait(lock, is_there)
                    : void(changed_.wait_for(lock, kRest, is_there));
        if (!TakeAdded(&all)) {
          lock.unlock();
          std::this_thread::sleep_for(kRest);
        }
      }
      std::erase_if(all, [](const Ending& one) {
        if (!one.has_ended() && !one.is_late()) return false;
        one.Complete();
        return true;
      });
    }
  }
  // Returns false if there is no memory for the new ones, which then wait.
  bool TakeAdded(std::vector<Ending>* all) noexcept {
    try {
      all->reserve(all->size() + added_.size());
    } catch (const std::bad_alloc&) {
      return false;
    }
    std::ranges::move(added_, std::back_inserter(*all));
    added_.clear();
    return true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Ending> added_;
  bool has_thread_ = false;
};

}  // namespace

void CompleteAfterGpus(const std::shared_ptr<Call>& call) {
  // Never destroyed, because its thread lives as long as the process.
  static auto* const endings = new Endings;
  NoMemoryLeft();  // makes the error while there is memory
  try {
    endings->Add(call);
  } catch (const std::exception&) {
    // Without a thread or memory, this thread waits.
    const Ending ending{call};
    while (!ending.has_ended() && !ending.is_late()) std::this_thread::sleep_for(kRest);
    ending.Complete();
  }
}

}  // namespace tkv
