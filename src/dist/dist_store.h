// The KVStore of one worker of a job.

#pragma once

#include <array>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codec/compress.h"
#include "codec/rows.h"
#include "dist/push_compression.h"
#include "dist/row_encoder.h"
#include "dist/saver.h"
#include "dist/server_updater.h"
#include "dist/store_core.h"
#include "dist/transfer_builder.h"
#include "dist/transfer_calls.h"
#include "job/job_status.h"
#include "job/worker.h"
#include "store/snapshots.h"
#include "update/cache.h"

namespace tkv {

class DistStore : public KVStore, public RestoresSnapshots {
 public:
  DistStore(std::string type, const StoreOptions& options, const std::shared_ptr<Worker>& worker);
  ~DistStore() override;

  // Waits until every worker has called it.  Workers that are started again from now on go on with
  // what the store has: their `rejoined` is true, although no key may have had a push.
  void GoOnFromHere();

  // Returns the position among the stores of this worker, in the order of Create.
  StoreIdentity identity() const override {
    return {core_.number, core_.worker->store_count() > 1};
  }
  // As Worker::HasLostItsPlace, with the store's patience.
  bool HasLostItsPlace() const { return core_.worker->HasLostItsPlace(core_.options.patience); }

  void Init(std::span<const InitItem> items) override {
    AsWorker(Verb::kInit, "init", [&] { InitAs("init", items); });
  }
  void Push(std::span<const PushItem> items) override {
    AsWorker(Verb::kPush, "push",
             [&] { core_.calls.Tracked(transfers_.Push("push", items, false)); });
  }
  void Pull(std::span<const PullItem> items) override {
    core_.calls.Counted(Verb::kPull, "pull",
                        [&] { core_.calls.Await(transfers_.Pull("pull", items, false)); });
  }
  void PushPull(std::span<const PushItem> items, std::span<const PullItem> outs) override {
    AsWorker(Verb::kPushPull, "pushpull",
             [&] { core_.calls.Await(transfers_.PushPull("pushpull", items, outs, false)); });
  }
  Ticket PushAsync(std::span<const PushItem> items) override {
    return AsWorker(Verb::kPush, "push",
                    [&] { return core_.calls.Tracked(transfers_.Push("push", items, true)); });
  }
  Ticket PullAsync(std::span<const PullItem> items) override {
    return core_.calls.Counted(Verb::kPull, "pull", [&] {
      return core_.calls.Tracked(transfers_.Pull("pull", items, true));
    });
  }
  Ticket PushPullAsync(std::span<const PushItem> items, std::span<const PullItem> outs) override {
    return AsWorker(Verb::kPushPull, "pushpull", [&] {
      return core_.calls.Tracked(transfers_.PushPull("pushpull", items, outs, true));
    });
  }
  void Broadcast(std::span<const InitItem> items, std::span<const PullItem> outs) override;
  void InitRows(std::span<const RowsInitItem> items, std::string_view verb) override;
  void PushRows(std::span<const RowsPushItem> items, std::span<const PushItem> whole,
                std::string_view verb) override;
  void PullRows(std::span<const RowsPullItem> items, std::string_view verb) override;
  Ticket PushRowsAsync(std::span<const RowsPushItem> items, std::span<const PushItem> whole,
                       std::string_view verb) override;
  Ticket PullRowsAsync(std::span<const RowsPullItem> items, std::string_view verb) override;
  RowsExport ExportRows(const KeyView& key, const RowsFilter& filter) override;
  void ImportRows(const KeyView& key, const Rows& rows) override;
  TableStats StatsOfTable(const KeyView& key) override;
  void Assign(std::span<const InitItem> items) override {
    AsWorker(Verb::kInit, "assign", [&] { AssignAs("assign", items); });
  }
  void Delete(const KeyView& key) override;
  void SetUpdater(UpdateFunction updater, UpdateEnd end, SumType sums) override;
  void SetOptimizer(std::shared_ptr<const Optimizer> optimizer) override;
  void SetGradientCompression(const Compression& compression, const std::string& keys) override;

  std::string Save(const std::string& path) override {
    return AsWorker(Verb::kSave, "save", [&] { return saver_.Save("save", path, Parts::kAll); });
  }
  Ticket SaveAsync(const std::string& path) override {
    const auto save = [&] { return saver_.SaveAsync(path); };
    const Ticket begun = AsWorker(Verb::kSave, "save", save);
    return begun != nullptr ? begun : DoneTicket();
  }
  SnapshotInfo Load(const std::string& path) override {
    return AsWorker(Verb::kLoad, "load", [&] { return LoadAs("load", path, Parts::kAll); });
  }
  void SaveStates(const std::string& file) override {
    constexpr const char* kVerb = "save_optimizer_states";
    AsWorker(Verb::kSave, kVerb, [&] { saver_.Save(kVerb, file, Parts::kStates); });
  }
  void LoadStates(const std::string& file) override {
    constexpr const char* kVerb = "load_optimizer_states";
    AsWorker(Verb::kLoad, kVerb, [&] { LoadAs(kVerb, file, Parts::kStates); });
  }

  SnapshotInfo Run(const RestoreSteps& steps) override;

  std::string type() const override { return type_; }
  int rank() const override { return core_.worker->rank(); }
  int num_workers() const override { return core_.worker->workers(); }
  bool rejoined() const override { return core_.worker->rejoined(); }
  std::string url() const override { return core_.worker->url(); }
  void Barrier() override;
  Ticket BarrierAsync() override;
  uint64_t Round(const KeyView& key) const override;
  PushStep FormerStep(const KeyView& key) const override;

  size_t size() const override {
    const auto lock = core_.Lock("len");
    return core_.keys.size();
  }
  bool Contains(const KeyView& key) const override {
    const auto lock = core_.Lock("in");
    return core_.keys.Contains(key);
  }
  KeyInfo Describe(const KeyView& key, std::string_view verb) const override {
    const auto lock = core_.Lock(verb);
    return core_.keys.Get(verb, key)->info;
  }
  std::vector<Key> Keys() const override {
    const auto lock = core_.Lock("keys");
    return core_.keys.order();
  }
  std::shared_ptr<Optimizer> UpdateOf(const KeyView& key) const override;
  JobStatus Status() const override;
  StoreStats Stats() const override;
  void StartTrace() override;
  void PauseTrace() override;
  TraceInfo WriteTrace(const std::string& file) override;
  void Close() override { CloseAs({}); }
  void CloseAfterFailure() override { CloseAs(program_failed_); }

 protected:
  // Makes the store of an observer, which reads the store with that number.
  DistStore(const StoreOptions& options, std::shared_ptr<Worker> observer, uint32_t store);

  // Returns the keys of each server.
  ServerListings ListAll(const std::string& verb) const;
  StoreCore& core() const { return core_; }

 private:
  DistStore(std::string type, const StoreOptions& options, std::shared_ptr<Worker> worker,
            std::shared_ptr<SaveSchedule> schedule, uint32_t number);
  DistStore(std::string type, const StoreOptions& options, const std::shared_ptr<Worker>& worker,
            std::shared_ptr<SaveSchedule> schedule);
  // Throws for a verb that only workers have if this is the store of an observer.
  void CheckIsWorker(std::string_view called) const;
  // Calls f for a verb that only workers have, and counts it.
  //   throws  as f, kFailedPrecondition (an observer's store)
  template <typename F>
  std::invoke_result_t<F&> AsWorker(Verb verb, std::string_view called, F f) {
    return core_.calls.Counted(verb, called, [&] {
      CheckIsWorker(called);
      return f();
    });
  }
  void Erase(const KeyView& key);
  void InitAs(std::string_view verb, std::span<const InitItem> items);
  void InitRowsAs(std::string_view verb, std::span<const RowsInitItem> items);
  using NewRecordPtr = std::shared_ptr<KeyRecord>;
  NewRecordPtr NewRecord(std::string_view verb, const KeyView& key, KeyInfo info,
                         std::string_view mode) const;
  KeyMeta MetaOf(const KeyRecord& record) const;
  Layout NewLayout() const;
  NewRecordPtr NewValue(std::string_view verb, const InitItem& item, Layout layout) const;
  Operation InitOf(std::string_view verb, const KeyRecord& record, const NDArray& value);
  void LaunchInits(const std::string& verb, std::vector<Operation> inits,
                   const std::vector<NewRecordPtr>& records);

  // dist_rows.cc
  NewRecordPtr NewTable(std::string_view verb, const RowsInitItem& item);
  Operation InitRowsOf(std::string_view verb, const NewRecordPtr& record, const Rows* rows);
  // dist_tables.cc
  struct CutTable;
  RecordPtr GetTable(const std::string& verb, const KeyView& key);
  NDArray ReadRowsPart(const CutTable& cut, uint64_t part, uint64_t first, uint64_t count);
  std::vector<int64_t> ExportedIds(const CutTable& cut, const RowsFilter& filter);
  void ReadValues(const CutTable& cut, const Rows& rows);
  RowsExport ExportRowsAs(const std::string& verb, const KeyView& key, const RowsFilter& filter);
  void ImportRowsAs(const std::string& verb, const KeyView& key, const Rows& rows);

  // Begins a barrier.
  //   failure  the error of the work before the barrier, as in Operation: all workers that come
  //            receive it
  CallPtr StartBarrier(const std::string& verb, const std::optional<Error>& failure = {},
                       Operation::Barrier::Task task = Operation::Barrier::Task::kNone);
  JobTrace::Ask Asking(const char* verb);
  void CloseAs(const std::optional<Error>& failure);
  void Leave(const std::optional<Error>& failure);
  void LeaveUnclosed(const std::optional<Error>& failure) noexcept;
  void WarnOfDrop(const char* what, const char* why) const noexcept;
  void FreeKeys();
  SnapshotInfo LoadAs(const std::string& verb, const std::string& path, Parts parts);
  // A task of one worker that all workers wait for, between two barriers.
  struct Meeting {
    const char* task;  // the words for it in messages
    const char* verb;
    // The worker with the task, and its incarnation.
    std::pair<Rank, uint64_t> worker = {kNoRank, 0};
  };
  struct Loading;
  void OpenFor(const std::string& verb, const std::string& path, Parts parts, Loading* loading);
  void PutBack(const std::string& verb, Parts parts, const Loading& loading);
  template <typename F>
  void Meet(const std::string& verb, const Meeting& meeting, const char* left, F f);
  void AwaitEndOf(const Meeting& meeting);
  void AssignAs(const std::string& verb, std::span<const InitItem> items);
  void CheckHasPushed(const std::string& task);
  void CheckEven(const std::string& verb, std::span<const RecordPtr> records);
  // Sends the values of an assign to the servers, and waits for them.
  void SendValues(const std::string& verb, std::span<const InitItem> items,
                  const std::vector<RecordPtr>& records);
  void ContinueRounds(const KeyRecord& record);
  void BeginAnewIfNothingHasBegun();
  // Returns true if an earlier life of this worker had reached the barrier that comes next.
  bool HasReachedNextBarrier() const;

  const std::string type_;
  const KeyMeta::Mode mode_;
  const Time begin_ = NodeThread::Now();
  // Made in time, because the destructor may have no memory for it.
  const Error program_failed_{Code::kAborted, "the worker's program has failed"};
  mutable StoreCore core_;
  RowEncoder row_encoder_;
  PushCompression compression_{core_.options.threads, core_.options.log};

  // The count at the creation.  A higher count at the end means that the program has failed.
  const int exceptions_ = std::uncaught_exceptions();
  ServerUpdater updater_{&core_};
  // The mutex of the keys guards the two members below.  The snapshot that a restore has verified, and its path as the user gave it.
  std::optional<std::pair<std::string, checkpoint::Reader>> verified_;
  KeyStats deleted_{Key(KeyView(0))};  // the totals of deleted keys

  Saver saver_;
  TransferBuilder builder_{&core_, &updater_, &compression_, &row_encoder_};
  TransferCalls transfers_{&core_, &builder_, &saver_};
};

}  // namespace tkv
