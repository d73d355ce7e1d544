// A save under way: reads the versions of the keys that the servers keep for it, and writes them to
// a folder.  The calling thread or another one does the work.

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

#include "base/format.h"
#include "job/call.h"
#include "job/worker.h"
#include "store/snapshots.h"

namespace tkv {

class Saving final : public PendingCall {
 public:
  // The version of a key that the servers keep for this save.
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

  // Adds a store whose keys the servers keep for this save too.
  void AddStore(uint32_t store) { stores_.insert(store); }
  void Add(SavedKey key, Source source) {
    keys_.push_back(std::move(key));
    sources_.push_back(std::move(source));
  }
  // Makes this a save that writes no snapshot if the newest one in the folder has all keys with the
  // same values, states and rounds.  Without a snapshot in the folder, it writes none if nothing
  // was pushed.
  //   has_replaced  values were replaced other than by pushes, so that a first snapshot is needed
  //   has_erased    keys were deleted: a snapshot with more keys of these stores is not equal
  //   earlier       a save that has succeeded: if it had equal keys, nothing is new; null: none
  void OnlyIfNew(bool has_replaced, bool has_erased, const Saving* earlier) {
    only_if_new_ = true;
    has_replaced_ = has_replaced;
    has_erased_ = has_erased;
    is_saved_ = earlier != nullptr && earlier->keys_ == keys_;
  }
  // Writes the snapshot, and releases the versions that the servers keep.
  //   returns  the path of the snapshot; empty if there is nothing new to write
  //   throws   as WriteSnapshot, errors of the servers, and what the interrupt throws
  std::string Run() { return Write(options_.interrupt); }
  // Does the work of Run on a new thread.
  //   throws  kResourceExhausted  there is no thread: the save has ended with this error
  static void Start(const std::shared_ptr<Saving>& saving);
  // Releases the versions that the servers keep, without waiting for an answer.
  void Release() noexcept;
  // Asks the save to end soon, and waits until its thread has ended.
  void Stop();
  // Waits until the save has ended, with or without an error.
  //   throws  kDeadlineExceeded
  void WaitUntilDone(std::chrono::nanoseconds patience);
  // Returns the error of the save, unless Wait has reported it.
  std::optional<Error> Unseen() const;

  bool done() const noexcept override;
  void Wait(std::chrono::nanoseconds patience) override;
  void OnEnd(std::function<void()> ended) override;
  bool Cancel() override;
  std::optional<Error> failure() const override;
  std::string saved_path() const override;

 private:
  class KeptParts;
  bool IsInNewest(const std::function<void()>& interrupt) const;
  bool HasSameParts(const checkpoint::Reader& newest, const std::vector<size_t>& positions,
                    const std::function<void()>& interrupt) const;
  std::string Write(const std::function<void()>& interrupt);
  void End(std::optional<Error> error, std::string saved_path = {});

  const std::string verb_;
  const std::string path_;
  const Parts parts_;
  const std::shared_ptr<Worker> worker_;
  const uint32_t store_;
  std::set<uint32_t> stores_;  // the stores of which servers keep keys
  const StoreOptions options_;
  // Made in advance, because an error needs memory.
  const Error cancelled_ = Fail(Code::kCancelled, "{} {}: given up", verb_, path_);
  const Error no_memory_ =
      Fail(Code::kResourceExhausted, "{} {}: no memory to write it", verb_, path_);
  bool only_if_new_ = false;
  bool has_replaced_ = false;
  bool has_erased_ = false;
  bool is_saved_ = false;  // an earlier save has all that this one would write
  std::vector<SavedKey> keys_;
  std::vector<Source> sources_;
  WriteCancellation cancellation_;
  // Guards the thread: several stores may be closed at once.
  std::mutex stopping_;
  std::thread thread_;

  // Guards the members below.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  bool is_told_ = false;
  std::optional<Error> error_;
  std::string saved_path_;
  std::vector<std::function<void()>> on_end_;
};

}  // namespace tkv
