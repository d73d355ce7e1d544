// A whole cluster in one thread, on the machines and the transport that a real one has, with a
// clock of its own.

#pragma once

#include <array>
#include <deque>
#include <memory>
#include <set>
#include <string>

#include "node/node.h"
#include "simulation/history.h"
#include "simulation/model.h"
#include "simulation/scenario.h"
#include "transport/inproc/network.h"

namespace tkv::simulation {

inline constexpr Time kPatience = 15 * kSecond;
inline constexpr Time kServerPatience = 8 * kSecond;
inline constexpr Time kGrace = 1 * kSecond;
inline constexpr int kFailuresMax = 4;  // after which a driver gives up and leaves
inline constexpr size_t kTraceLines = 4000;

class Simulation;

// A machine with its place in the network.
class Process final : public LinkHandler, public MessageTap {
 public:
  enum class Kind : uint8_t { kHead, kServer, kWorker, kObserver };

  Process(Simulation* simulation, Kind kind, int index, uint64_t number);

  uint64_t Accepted() override { return node->Accept(); }
  void Opened(uint64_t link) override;
  void Closed(uint64_t link, const Error& reason) override;
  std::vector<Block> Land(uint64_t link, std::span<const std::byte> head,
                          const std::byte* lent) override;
  void Received(uint64_t link) override;
  void Sent(LinkId link, const Message& message) override;
  void Received(LinkId link, const Message& message, const char* state) override;

  HeadNode* head() const { return static_cast<HeadNode*>(node.get()); }
  ServerNode* server() const { return static_cast<ServerNode*>(node.get()); }
  ClientNode* client() const { return static_cast<ClientNode*>(node.get()); }

  Simulation* simulation;
  Kind kind;
  int index;
  std::string address;
  BufferPool pool;
  std::unique_ptr<Node> node;
  std::unique_ptr<Endpoint> endpoint;
  Random disk_times;
  std::map<Time, uint64_t> readings;  // tickets of what the disk reads, by when it has
};

inline constexpr int kCutting = 0, kReading = 1, kReleasing = 2;  // phases of a kSave
// What it reads of a key by rows, before it reads the values once more, by ids.
inline constexpr std::array kKeptParts = {ChunkState::kIds, ChunkState::kNotes, ChunkState::kValue,
                                          ChunkState::kCandidates, ChunkState::kCandidateNotes};

// The user of a client: runs the program of the scenario.
struct Driver {
  struct Running {
    Step step;
    size_t key = 0;
    bool is_init = false;
    Bytes value;
    Block out;
    Push push;
    RowSet rows = kAllRows;      // that a pull asks for
    uint64_t last_accepted = 0;  // of the key, when a pull began
    uint64_t round = 0;          // of the last push of the key, when a pull began
    Time begin = 0;
    bool accepted = false;
    bool has_push = false;
    uint64_t logged_at = 0;   // its beginning in the history
    uint64_t generation = 0;  // of the key, which may be made anew
    uint64_t last_push = 0;   // ordinal of the life's last push before a kControl
    int phase = 0;            // of a kRecreate or kSave
    bool is_mistake = false;  // a delete of a key that has just been deleted
    // Of a kSave that reads: what was kept, and by rows the parts that have been read.
    std::shared_ptr<const std::vector<ChunkState>> states;
    std::map<uint64_t, Block> parts;
    size_t next_part = 0;
  };
  Process* process = nullptr;
  Rank rank = kNoRank;
  Time born = 0;
  size_t next_init = 0;
  size_t next_step = 0;
  size_t step_count = 0;
  bool started = false;
  bool asked_barrier = false;
  std::set<uint32_t> closing;  // stores that it has begun to close
  std::set<uint32_t> closed;
  bool was_early = false;  // has sent a CONTROL before its inits
  bool leaving = false;
  bool done = false;
  bool opened = false;  // an observer has found the key that it pulls next
  size_t observed = 0;
  uint64_t ordinal = 0;
  int failures = 0;
  int recreate_phase = 0;
  std::vector<uint64_t> rounds_at_start;  // of each key, where this life has joined; last: barrier
  std::map<size_t, uint64_t> generation;  // how often a key has been made anew
  std::map<size_t, uint64_t> last_accepted;  // ordinal of the last accepted push of a key
  std::map<size_t, uint64_t> last_round;     // and its round
  std::set<size_t> missing;                  // keys that could not be made
  std::map<OpId, Running> running;
};

class Simulation final : public FaultInjector, public ShardListener {
 public:
  explicit Simulation(const testing::SimulationOptions& options);
  ~Simulation() override;

  testing::SimulationReport Run();

  // ---- faults
  int64_t Delay(const std::string& from, const std::string& to, size_t bytes) override;
  int Copies(const std::string& from, const std::string& to) override;
  bool IsCut(const std::string& from, const std::string& to) override;
  // ---- checks
  void Completed(const Shard& shard, const ChunkId& id, const Chunk& chunk) override;

 private:
  friend class Process;

  struct Planned {
    enum class Kind : uint8_t { kBegin, kEnd, kIsolate };
    Time at = 0;
    int rank = 0;
    Kind kind = Kind::kBegin;
  };
  struct Period {  // a fault that lasts
    Fault::Kind kind;
    Time until;
    std::string from;  // empty: everybody
    std::string to;
  };

  struct Body {                       // of a push, as the driver made it
    std::weak_ptr<const void> owner;  // expired: other bytes may lie there now
    size_t key = 0;
    Push push;
  };

  void Loop();
  Process* Add(Process::Kind kind, int index);
  void Remove(Process* process, bool silently);
  void Dispatch(Process* process);
  void Event(Process* process, const char* what, uint64_t link);
  void Inject();
  void InjectOne(const Fault& fault);
  void StartWorker(int rank);
  Process* WorkerOf(int rank) const;
  void Kill(Process* worker, const Fault& fault, Random* choice);
  void Happen(const Planned& planned);
  void Drive(Driver* driver);
  bool StartNext(Driver* driver);
  void StartInit(Driver* driver);
  bool StartsEarlyControl(Driver* driver);
  bool IsClosed(const Driver& driver, uint32_t store) const;
  bool IsClosedForLaterLife(const Driver& driver, size_t key) const;
  void CheckStores();
  const Driver* DriverOf(Rank rank, const Epoch& epoch) const;
  void CheckStore(const Shard& shard, uint32_t server, const SimKey& key);
  RowSet AskedRows(const Driver& driver, const Step& step) const;
  bool StartStep(Driver* driver, const Step& step);
  void StartRecreate(Driver* driver, const Step& step);
  void StartRelease(Driver* driver, size_t key);
  bool StartRead(Driver* driver, Driver::Running saved);
  bool ChooseRows(const Driver& driver, Driver::Running* saved, Operation* read) const;
  void CheckSave(const Driver& driver, const Driver::Running& running, const Outcome& outcome);
  void OnOutcome(Driver* driver, const Outcome& outcome);
  void CheckFailure(const Driver& driver, const Driver::Running& running, const Error& error);
  OpId Begin(Driver* driver, Operation operation, Driver::Running running);
  Life LifeOf(const Driver& driver) const;
  std::optional<std::pair<size_t, Push>> PushOf(const Driver& driver, const Message& message) const;
  std::vector<const Shard*> Shards() const;
  void Record(const Driver& driver, const Driver::Running& running, HistoryEvent::Kind kind,
              uint64_t end, uint64_t round);
  bool IsLost(const SimKey& key) const;
  bool EndedUnknown() const;
  bool Happened(std::initializer_list<Fault::Kind> kinds) const;
  void CheckMemory();
  void CheckParked();
  void CheckAtEnd();
  void Violate(const std::string& text);
  const Epoch& HeadEpoch() const;
  std::string Peer(const tkv::Peer& peer) const;

  testing::SimulationOptions options_;
  Scenario scenario_;
  Model model_;
  Random random_;
  Time now_ = 0;
  uint64_t events_ = 0;
  uint64_t process_count_ = 0;
  std::unique_ptr<InprocNetwork> network_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<Process*> servers_;  // by index; null: dead
  Process* head_ = nullptr;
  std::map<Process*, Driver> drivers_;
  std::vector<Period> periods_;
  std::map<size_t, History> histories_;  // of each key with exact reads
  uint64_t logged_ = 0;
  std::set<Fault::Kind> recent_;  // faults that have been at work lately
  Time recent_until_ = 0;
  size_t next_fault_ = 0;
  std::vector<Planned> planned_;                // what will happen to workers
  std::map<uint32_t, std::set<Rank>> closers_;  // of a store: ranks that have begun to close it
  int isolations_ = 0;                          // that wait for the next CONTROL
  std::map<const void*, Body> bodies_;          // by owner
  std::set<std::pair<size_t, Push>> started_;   // all pushes, with their keys
  std::map<KeyId, size_t> key_index_;
  std::map<uint64_t, std::set<Rank>> barriers_;     // who has come to the barrier with this number
  std::map<std::string, Time> next_cut_from_head_;  // of a worker, by address: not before
  bool has_barrier_failed_ = false;  // somewhere; from then on the numbers of the ranks differ
  Epoch last_epoch_;
  uint64_t epoch_number_ = 0;  // of the head
  Time epoch_since_ = 0;       // when it began
  testing::SimulationReport report_;
  std::deque<std::string> trace_;
  std::map<std::array<std::string, 4>, uint64_t> coverage_;  // fault, receiver, message, state
};

}  // namespace tkv::simulation
