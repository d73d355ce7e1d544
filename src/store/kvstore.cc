#include "tkv/kvstore.h"

#include <algorithm>

#include "base/format.h"
#include "base/small_vector.h"
#include "store/checks.h"

namespace tkv {
namespace {

SmallVector<const NDArray*> Pointers(std::span<const NDArray> arrays) {
  SmallVector<const NDArray*> pointers;
  pointers.reserve(arrays.size());
  for (const NDArray& array : arrays) pointers.push_back(&array);
  return pointers;
}

// MXNet's node numbers: below 8 a sum of groups; from 8 on, server and worker of each rank in turn.
constexpr int kHeadGroup = 1;
constexpr int kServerGroup = 2;
constexpr int kWorkerGroup = 4;
constexpr int kFirstRank = 8;

constexpr std::string_view kDead = "dead";

bool IsHeadDead(const StoreStats& stats) {
  return std::any_of(stats.peers.begin(), stats.peers.end(), [](const PeerStats& peer) {
    return peer.name == "head" && peer.state == kDead;
  });
}

int CountDead(const std::vector<std::string>& states) {
  return static_cast<int>(std::count(states.begin(), states.end(), kDead));
}

bool IsDead(const StoreStats& stats, int node) {
  const bool is_worker = (node - kFirstRank) % 2 != 0;
  const auto rank = static_cast<size_t>((node - kFirstRank) / 2);
  const std::vector<std::string>& states = is_worker ? stats.workers : stats.servers;
  if (rank >= states.size()) {
    throw Fail(Code::kInvalidArgument, "num_dead_node: {} is {} {}, of {}", node,
               is_worker ? "worker" : "server", rank, states.size());
  }
  return states[rank] == kDead;
}

// An operation that has ended already: a store of one process does everything immediately.
class Done final : public PendingCall {
 public:
  explicit Done(std::string saved_path) : saved_path_(std::move(saved_path)) {}
  bool done() const noexcept override { return true; }
  void Wait(std::chrono::nanoseconds) override {}
  void OnEnd(std::function<void()> ended) override {
    CheckCallable(ended);
    ended();
  }
  bool Cancel() override { return false; }
  std::optional<Error> failure() const override { return std::nullopt; }
  std::string saved_path() const override { return saved_path_; }

 private:
  const std::string saved_path_;
};

}  // namespace

Ticket KVStore::PushAsync(std::span<const PushItem> items) {
  Push(items);
  return DoneTicket();
}

Ticket KVStore::PullAsync(std::span<const PullItem> items) {
  Pull(items);
  return DoneTicket();
}

Ticket KVStore::PushPullAsync(std::span<const PushItem> items, std::span<const PullItem> outs) {
  PushPull(items, outs);
  return DoneTicket();
}

Ticket KVStore::PushRowsAsync(std::span<const RowsPushItem> items, std::span<const PushItem> whole,
                              std::string_view verb) {
  PushRows(items, whole, verb);
  return DoneTicket();
}

Ticket KVStore::PullRowsAsync(std::span<const RowsPullItem> items, std::string_view verb) {
  PullRows(items, verb);
  return DoneTicket();
}

std::shared_ptr<Optimizer> KVStore::UpdateOf(const KeyView& key) const {
  throw Fail(Code::kFailedPrecondition,
             "explain {}: a store of one process has no servers; its updater is what was set",
             key.ToString());
}

JobStatus KVStore::Status() const {
  throw Fail(Code::kFailedPrecondition,
             "status: a store of one process has no job; stats says what it does");
}

int KVStore::NumDeadNode(int node) const {
  const StoreStats stats = Stats();
  if (node < 1) {
    throw Fail(Code::kInvalidArgument,
               "num_dead_node: {}; a sum of 1, 2 and 4, or a number of MXNet's is needed", node);
  }
  if (node >= kFirstRank) return IsDead(stats, node) ? 1 : 0;

  int dead = 0;
  if ((node & kHeadGroup) != 0 && IsHeadDead(stats)) ++dead;
  if ((node & kServerGroup) != 0) dead += CountDead(stats.servers);
  if ((node & kWorkerGroup) != 0) dead += CountDead(stats.workers);
  return dead;
}

Ticket KVStore::DoneTicket(std::string saved_path) {
  return std::make_shared<Done>(std::move(saved_path));
}

Ticket KVStore::SaveAsync(const std::string& path) { return DoneTicket(Save(path)); }

PushStep KVStore::FormerStep(const KeyView& /*key*/) const { return {}; }

Ticket KVStore::BarrierAsync() {
  Barrier();
  return DoneTicket();
}

void KVStore::Init(const KeyView& key, const NDArray& value) {
  const InitItem item{key, &value};
  Init({&item, 1});
}

void KVStore::Push(const KeyView& key, const NDArray& value) { Push(key, std::span(&value, 1)); }

void KVStore::Push(const KeyView& key, std::span<const NDArray> values) {
  const auto pointers = Pointers(values);
  const PushItem item{key, {pointers.data(), pointers.size()}};
  Push({&item, 1});
}

void KVStore::Pull(const KeyView& key, const NDArray& out) { Pull(key, std::span(&out, 1)); }

void KVStore::Pull(const KeyView& key, std::span<const NDArray> outs) {
  const auto pointers = Pointers(outs);
  const PullItem item{key, {pointers.data(), pointers.size()}};
  Pull({&item, 1});
}

void KVStore::PushPull(const KeyView& key, std::span<const NDArray> values,
                       std::span<const NDArray> outs) {
  const auto value_pointers = Pointers(values);
  const auto out_pointers = Pointers(outs);
  const PushItem push{key, {value_pointers.data(), value_pointers.size()}};
  const PullItem pull{key, {out_pointers.data(), out_pointers.size()}};
  PushPull({&push, 1}, {&pull, 1});
}

}  // namespace tkv
