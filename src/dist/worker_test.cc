#include "job/worker.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <new>
#include <span>
#include <string>
#include <thread>

#include "checkpoint/writer.h"
#include "dist/dist_store.h"
#include "job/cluster.h"
#include "tests/arrays.h"

namespace tkv {
namespace {

using test::Full;
using test::Values;

// An endpoint that notes which memory its user takes back.
class Noting final : public Endpoint {
 public:
  struct Notes {
    std::mutex mutex;
    std::vector<const void*> sources, targets;
    std::atomic<bool> lacks_memory{false};  // for any arriving frame
    std::atomic<bool> lacks_copies{false};  // for copies of sources
    std::atomic<bool> has_noted{false};     // a copy for which there was no memory
  };
  Noting(std::unique_ptr<Endpoint> endpoint, std::shared_ptr<Notes> notes)
      : endpoint_(std::move(endpoint)), notes_(std::move(notes)) {}

  const std::string& address() const override { return endpoint_->address(); }
  void Dial(uint64_t link, const std::string& address) override { endpoint_->Dial(link, address); }
  void Send(uint64_t link, Frame frame) override { endpoint_->Send(link, std::move(frame)); }
  void Close(uint64_t link) override { endpoint_->Close(link); }
  void ReleaseSource(const void* data, size_t bytes) override {
    Note(&notes_->sources, data);
    if (notes_->lacks_copies) {
      notes_->has_noted = true;
      notes_->has_noted.notify_all();
      throw std::bad_alloc();
    }
    endpoint_->ReleaseSource(data, bytes);
  }
  void ReleaseTarget(const void* data, size_t bytes) override {
    Note(&notes_->targets, data);
    endpoint_->ReleaseTarget(data, bytes);
  }
  size_t Poll(LinkHandler* handler, size_t events_max) override {
    if (notes_->lacks_memory) throw std::bad_alloc();
    return endpoint_->Poll(handler, events_max);
  }
  bool Wait(int64_t nanoseconds) override { return endpoint_->Wait(nanoseconds); }
  void Wake() override { endpoint_->Wake(); }
  TrafficStats Traffic(uint64_t link) const override { return endpoint_->Traffic(link); }

 private:
  void Note(std::vector<const void*>* list, const void* data) {
    std::lock_guard lock(notes_->mutex);
    if (std::find(list->begin(), list->end(), data) == list->end()) list->push_back(data);
  }
  const std::unique_ptr<Endpoint> endpoint_;
  const std::shared_ptr<Notes> notes_;
};

// Worker 0 of two, whose endpoint takes notes.  The test decides what worker 1 does.
class TakenBack : public ::testing::Test {
 protected:
  TakenBack() : cluster_(std::make_shared<Cluster>(ClusterOptions{.workers = 2, .servers = 1})) {
    options_.patience = std::chrono::seconds(30);
    WorkerOptions worker;
    worker.job = Cluster::kJob;
    worker.rank = 0;
    worker.endpoint = std::make_unique<Noting>(cluster_->network()->Listen("noting"), notes_);
    worker.address_of = Cluster::AddressOf;
    worker.host = cluster_;
    std::thread other([this] {
      other_ = std::make_unique<DistStore>("dist_sync", options_,
                                           WorkerOf(cluster_, 1, "dist_sync", options_));
      for (const char* const key : {"open", "free"}) other_->Init(key, Full({kCount}, 0));
    });
    store_ = std::make_unique<DistStore>(
        "dist_sync", options_, std::make_shared<Worker>("dist_sync", options_, std::move(worker)));
    for (const char* const key : {"open", "free"}) store_->Init(key, Full({kCount}, 0));
    other.join();
  }
  ~TakenBack() override {
    std::thread other([this] { other_->Close(); });
    store_->Close();
    other.join();
  }
  // Returns an array whose memory others may write without this library's knowledge.
  static NDArray Foreign(float value) {
    const NDArray array = Full({kCount}, value);
    array.storage()->MarkForeign(Access::kWrite, std::chrono::seconds(1));
    return array;
  }
  // Begins an asynchronous pushpull of two keys.  The first one cannot leave, because its round is
  // open.
  Ticket PushPullOfTwo() {
    store_->Push("open", Full({kCount}, 1));
    const NDArray* const arrays[] = {&sources_[0], &sources_[1], &outs_[0], &outs_[1]};
    const std::span<const NDArray* const> one(arrays);
    const PushItem pushes[] = {{"open", one.subspan(0, 1)}, {"free", one.subspan(1, 1)}};
    const PullItem pulls[] = {{"open", one.subspan(2, 1)}, {"free", one.subspan(3, 1)}};
    return store_->PushPullAsync(pushes, pulls);
  }
  static std::vector<const void*> Sorted(std::vector<const void*> list) {
    std::sort(list.begin(), list.end());
    return list;
  }
  static std::vector<const void*> MemoryOfAll(const std::vector<NDArray>& arrays) {
    std::vector<const void*> list;
    for (const NDArray& array : arrays) list.push_back(array.HostData());
    return Sorted(list);
  }

  static constexpr int64_t kCount = 1000;
  const std::shared_ptr<Noting::Notes> notes_ = std::make_shared<Noting::Notes>();
  const std::shared_ptr<Cluster> cluster_;
  StoreOptions options_;
  std::unique_ptr<KVStore> store_, other_;
  const std::vector<NDArray> sources_ = {Foreign(2), Foreign(3)};
  const std::vector<NDArray> outs_ = {Full({kCount}, -1), Full({kCount}, -1)};
};

TEST_F(TakenBack, ACallThatGoesOnWithCopiesTakesBackItsSourcesAndNoneOfItsOutputs) {
  // Its wait for the sources has timed out.
  const Ticket ticket = PushPullOfTwo();
  EXPECT_EQ(Sorted(notes_->sources), MemoryOfAll(sources_));
  EXPECT_TRUE(notes_->targets.empty()) << "what lands there is what the call is for";
  other_->Push("open", Full({kCount}, 10));
  for (const char* const key : {"open", "free"}) other_->Push(key, Full({kCount}, 20));
  ticket->Wait(std::chrono::seconds(30));
  EXPECT_EQ(Values(outs_[0])[kCount - 1], 22);
  EXPECT_EQ(Values(outs_[1])[kCount - 1], 23);
}

TEST_F(TakenBack, APushThatCannotBeCopiedWaitsUntilItsSourceIsFree) {
  store_->Push("open", Full({kCount}, 1));
  notes_->lacks_copies = true;
  // The round ends after the push has tried to copy the sources for which it waits.
  std::thread other([this] {
    notes_->has_noted.wait(false);
    other_->Push("open", Full({kCount}, 10));
  });
  EXPECT_NO_THROW(store_->Push("open", sources_[0]));
  auto* const values = static_cast<float*>(sources_[0].HostData());
  std::fill(values, values + kCount, 777.0F);
  other.join();
  notes_->lacks_copies = false;
  other_->Push("open", Full({kCount}, 20));
  const NDArray out = Full({kCount}, -1);
  store_->Pull("open", out);
  EXPECT_EQ(Values(out)[kCount - 1], 22);
}

TEST_F(TakenBack, ACallThatIsRefusedMovesNoBytes) {
  const StoreStats before = store_->Stats();
  const NDArray wrong = Full({kCount}, 1), right = Full({kCount}, 1);
  const NDArray* const arrays[] = {&right, &wrong};
  const std::span<const NDArray* const> one(arrays);
  const PushItem pushes[] = {{"open", one.subspan(0, 1)}, {"none", one.subspan(1, 1)}};
  const PullItem pulls[] = {{"open", one.subspan(0, 1)}, {"none", one.subspan(1, 1)}};
  EXPECT_THROW(store_->Push(pushes), Error);
  EXPECT_THROW(store_->Pull(pulls), Error);
  const PullItem known[] = {{"open", one.subspan(0, 1)}};
  EXPECT_THROW(store_->PushPull(pushes, known), Error) << "its outputs are looked at first";
  const StoreStats after = store_->Stats();
  EXPECT_EQ(after.bytes.pushed_bytes, before.bytes.pushed_bytes);
  EXPECT_EQ(after.bytes.pulled_bytes, before.bytes.pulled_bytes);
}

TEST_F(TakenBack, ACallThatIsGivenUpThrowsAwayWhatLandsInItsOutputsAlone) {
  const Ticket ticket = PushPullOfTwo();
  ticket->Cancel();
  EXPECT_THROW(ticket->Wait(std::chrono::seconds(30)), Error);
  EXPECT_EQ(Sorted(notes_->targets), MemoryOfAll(outs_)) << "a source may be another call's output";
  other_->Push("open", Full({kCount}, 10));
  other_->Push("free", Full({kCount}, 20));
}

// ---- a store whose node is broken

// Makes the only worker of a job.
std::unique_ptr<KVStore> Alone(const std::shared_ptr<Noting::Notes>& notes) {
  const auto cluster = std::make_shared<Cluster>(ClusterOptions{.workers = 1, .servers = 1});
  StoreOptions options;
  options.patience = options.server_patience = std::chrono::seconds(30);
  WorkerOptions worker;
  worker.job = Cluster::kJob;
  worker.rank = 0;
  worker.endpoint = std::make_unique<Noting>(cluster->network()->Listen("noting"), notes);
  worker.address_of = Cluster::AddressOf;
  worker.host = cluster;
  std::unique_ptr<KVStore> store = std::make_unique<DistStore>(
      "dist_sync", options, std::make_shared<Worker>("dist_sync", options, std::move(worker)));
  store->Init("w", Full({10}, 0));
  return store;
}

TEST(Worker, AVerbAfterItsNodeHasBrokenEndsWithTheReasonAndWaitsForNothing) {
  const auto notes = std::make_shared<Noting::Notes>();
  const auto store = Alone(notes);
  const NDArray value = Full({10}, 1), out = Full({10}, -1);
  notes->lacks_memory = true;
  const auto code_of = [](const std::function<void()>& act) { return test::FailureOf(act).code; };
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(code_of([&] { store->PushPull("w", {&value, 1}, {&out, 1}); }),
              Code::kResourceExhausted);
    EXPECT_EQ(code_of([&] { store->Pull("w", out); }), Code::kResourceExhausted);
    EXPECT_EQ(code_of([&] { store->Barrier(); }), Code::kResourceExhausted);
    EXPECT_EQ(code_of([&] { store->Init(i == 0 ? "x" : "y", value); }), Code::kResourceExhausted);
  }
}

// A snapshot of a job has the keys of all its stores.
TEST(Worker, AStoreRestoresItsOwnKeys) {
  std::string name = ::testing::TempDir() + "tkv-XXXXXX";
  const std::string folder = mkdtemp(name.data());
  std::vector<checkpoint::SavedKey> keys(2);
  for (uint32_t store = 0; store < 2; ++store) {
    keys[store].key = Key(KeyView(store == 0 ? "of the first" : "of the second"));
    keys[store].store = store;
    keys[store].dtype = DType::kF32;
    keys[store].shape = Shape({1});
    keys[store].updates = {0};
  }
  checkpoint::Writer writer = checkpoint::Writer::Folder(folder, keys);
  for (const float value : {1.0F, 2.0F}) writer.Write(std::as_bytes(std::span(&value, 1)));
  const std::string saved = writer.Commit();
  const auto cluster = std::make_shared<Cluster>(ClusterOptions{.workers = 1, .servers = 1});
  const StoreOptions options;
  const auto worker = WorkerOf(cluster, 0, "dist_sync", options);
  const std::unique_ptr<KVStore> first = std::make_unique<DistStore>("dist_sync", options, worker);
  const std::unique_ptr<KVStore> second = std::make_unique<DistStore>("dist_sync", options, worker);
  second->Restore(saved);
  EXPECT_EQ(second->size(), 1U);
  NDArray out = NDArray::Zeros(Shape({1}), DType::kF32);
  second->Pull("of the second", out);
  EXPECT_EQ(*static_cast<float*>(out.HostData()), 2);
  first->Restore(saved);
  first->Pull("of the first", out);
  EXPECT_EQ(*static_cast<float*>(out.HostData()), 1);
  std::filesystem::remove_all(folder);
}

// ---- fork

TEST_F(TakenBack, ATicketOfTheParentIsRefusedInAChildOfFork) {
  const Ticket ticket = PushPullOfTwo();
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    const auto refused = [](const std::function<void()>& act) {
      return test::FailureOf(act).code == Code::kFailedPrecondition;
    };
    const bool ok = !ticket->done() && !ticket->failure() &&
                    refused([&] { ticket->Wait(std::chrono::seconds(30)); }) &&
                    refused([&] { ticket->OnEnd([] {}); }) && refused([&] { ticket->Cancel(); });
    _exit(ok ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  other_->Push("open", Full({kCount}, 10));
  for (const char* const key : {"open", "free"}) other_->Push(key, Full({kCount}, 20));
  ticket->Wait(std::chrono::seconds(30));
}

}  // namespace
}  // namespace tkv
