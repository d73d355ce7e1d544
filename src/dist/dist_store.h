// The KVStore of one worker of a job.

#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "dist/barriers.h"
#include "dist/key_creator.h"
#include "dist/loader.h"
#include "dist/push_compression.h"
#include "dist/row_encoder.h"
#include "dist/saver.h"
#include "dist/server_updater.h"
#include "dist/store_closer.h"
#include "dist/store_core.h"
#include "dist/tables.h"
#include "dist/transfer_builder.h"
#include "dist/transfer_calls.h"
#include "job/job_status.h"
#include "job/worker.h"
#include "store/snapshots.h"

namespace tkv {

class DistStore : public KVStore, public RestoresSnapshots {
 public:
  DistStore(std::string type, const StoreOptions& options, const std::shared_ptr<Worker>& worker);
  ~DistStore() override;

  // Waits until every worker has called it.  Workers that are started again from now on go on with
  // what the store has: their `rejoined` is true, although no key may have had a push.
  void GoOnFromHere();

  // Returns the position among the stores of this worker, in the order of Create.
  uint32_t number() const override { return core_.number; }
  // As Worker::HasLostItsPlace, with the store's patience.
  bool HasLostItsPlace() const { return core_.worker->HasLostItsPlace(core_.options.patience); }

  void Init(std::span<const InitItem> items) override {
    AsWorker(Verb::kInit, "init", [&] { creator_.Init("init", items); });
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
  void InitRows(std::span<const RowsInitItem> items, std::string_view verb) override {
    AsWorker(Verb::kInit, verb, [&] { creator_.InitRows(verb, items); });
  }
  void PushRows(std::span<const RowsPushItem> items, std::span<const PushItem> whole,
                std::string_view verb) override {
    AsWorker(Verb::kPush, verb, [&] {
      core_.calls.Tracked(transfers_.PushRows(std::string(verb), items, whole, false));
    });
  }
  void PullRows(std::span<const RowsPullItem> items, std::string_view verb) override {
    core_.calls.Counted(Verb::kPull, verb, [&] {
      core_.calls.Await(transfers_.PullRows(std::string(verb), items, false));
    });
  }
  Ticket PushRowsAsync(std::span<const RowsPushItem> items, std::span<const PushItem> whole,
                       std::string_view verb) override {
    return AsWorker(Verb::kPush, verb, [&] {
      return core_.calls.Tracked(transfers_.PushRows(std::string(verb), items, whole, true));
    });
  }
  Ticket PullRowsAsync(std::span<const RowsPullItem> items, std::string_view verb) override {
    return core_.calls.Counted(Verb::kPull, verb, [&] {
      return core_.calls.Tracked(transfers_.PullRows(std::string(verb), items, true));
    });
  }
  RowsExport ExportRows(const KeyView& key, const RowsFilter& filter) override {
    return AsWorker(Verb::kPull, "export_rows",
                    [&] { return tables_.Export("export_rows", key, filter); });
  }
  void ImportRows(const KeyView& key, const Rows& rows) override {
    AsWorker(Verb::kPush, "import_rows", [&] { tables_.Import("import_rows", key, rows); });
  }
  TableStats StatsOfTable(const KeyView& key) override { return tables_.Stats("table_stats", key); }
  void Assign(std::span<const InitItem> items) override {
    AsWorker(Verb::kInit, "assign", [&] { loader_.Assign("assign", items); });
  }
  void Delete(const KeyView& key) override {
    AsWorker(Verb::kDelete, "delete", [&] { Erase(key); });
  }
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
    return AsWorker(Verb::kLoad, "load", [&] { return loader_.Load("load", path, Parts::kAll); });
  }
  void SaveStates(const std::string& file) override {
    constexpr const char* kVerb = "save_optimizer_states";
    AsWorker(Verb::kSave, kVerb, [&] { saver_.Save(kVerb, file, Parts::kStates); });
  }
  void LoadStates(const std::string& file) override {
    constexpr const char* kVerb = "load_optimizer_states";
    AsWorker(Verb::kLoad, kVerb, [&] { loader_.Load(kVerb, file, Parts::kStates); });
  }

  SnapshotInfo Run(const RestoreSteps& steps) override {
    CheckIsWorker("restore");
    return loader_.Restore(steps);
  }

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
  void Close() override { closer_.Close({}); }
  void CloseAfterFailure() override { closer_.Close(program_failed_); }

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

  const std::string type_;
  const Time begin_ = NodeThread::Now();
  // Made in advance, because the destructor may have no memory for it.
  const Error program_failed_{Code::kAborted, "the worker's program has failed"};
  mutable StoreCore core_;
  RowEncoder row_encoder_;
  PushCompression compression_{core_.options.threads, core_.options.log};

  // The number of exceptions under way at the creation.  If it is higher at the end, the program
  // has failed.
  const int exceptions_ = std::uncaught_exceptions();
  ServerUpdater updater_{&core_};
  // The totals of deleted keys, which the mutex of the keys guards.
  KeyStats deleted_{Key(KeyView(0))};

  Saver saver_;
  TransferBuilder builder_{&core_, &updater_, &compression_, &row_encoder_};
  TransferCalls transfers_{&core_, &builder_, &saver_};
  KeyCreator creator_;
  Barriers barriers_{&core_};
  Loader loader_{&core_, &updater_, &builder_, &saver_, &barriers_};
  Tables tables_{&core_, &row_encoder_, &saver_};
  StoreCloser closer_{&core_, &saver_};
};

}  // namespace tkv
