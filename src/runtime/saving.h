// A save under way: what servers keep of every key is read and written, here or by a thread.

#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/call.h"
#include "runtime/worker.h"
#include "store/snapshots.h"

namespace tkv {

class Saving final : public PendingCall {
 public:
  // How a key was cut.
  struct Source {
    std::string name;  // canonical
    std::shared_ptr<const KeyMeta> meta;
    std::shared_ptr<const std::vector<ChunkState>> states;
  };

  Saving(std::string verb, std::string path, Parts parts, std::shared_ptr<Worker> worker,
         uint32_t store, StoreOptions options)
      : verb_(std::move(verb)),
        path_(std::move(path)),
        parts_(parts),
        worker_(std::move(worker)),
        store_(store),
        stores_({store}),
        options_(std::move(options)) {}
  ~Saving() override;

  // Servers keep keys of this store too.
  void AddStore(uint32_t store) { stores_.insert(store); }
  void Add(SavedKey key, Source source) {
    keys_.push_back(std::move(key));
    sources_.push_back(std::move(source));
  }
  // Returns true if the newest snapshot of the folder has all keys with the same rounds and updates; if
  // there is none, if nothing has been pushed.
  bool IsInNewest() const;
  // Ends it without a snapshot.
  void Skip();
  // Writes all of it, and lets the servers forget what they have kept.
  //   returns  the path of the snapshot
  //   throws   as WriteSnapshot, what the servers say, and what the interrupt throws
  std::string Run() { return Write(options_.interrupt); }
  // The same, by a thread of its own.
  //   throws  kResourceExhausted  there is no thread: the save has ended with this error
  static void Start(const std::shared_ptr<Saving>& saving);
  // Lets the servers forget; waits for nobody.
  void Release() noexcept;
  // It ends as soon as it can, and the thread has ended then.
  void Stop();
  // Until it has ended, well or not.
  //   throws  kDeadlineExceeded
  void WaitUntilDone(std::chrono::nanoseconds patience);
  // The error that nobody has been told.
  std::optional<Error> Unseen() const;

  bool done() const noexcept override;
  void Wait(std::chrono::nanoseconds patience) override;
  void OnEnd(std::function<void()> ended) override;
  bool Cancel() override;
  std::optional<Error> failure() const override;
  std::string saved_path() const override;

 private:
  class KeptParts;
  std::string Write(const std::function<void()>& interrupt);
  void End(std::optional<Error> error, std::string saved_path = {});

  const std::string verb_;
  const std::string path_;
  const Parts parts_;
  const std::shared_ptr<Worker> worker_;
  const uint32_t store_;
  std::set<uint32_t> stores_;  // of which servers keep keys
  const StoreOptions options_;
  std::vector<SavedKey> keys_;
  std::vector<Source> sources_;
  GiveUp give_up_;
  std::mutex stopping_;  // of the thread: several stores may be closed at once
  std::thread thread_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  bool done_ = false;
  bool is_told_ = false;
  std::optional<Error> error_;
  std::string saved_path_;
  std::vector<std::function<void()>> on_end_;
};

}  // namespace tkv
