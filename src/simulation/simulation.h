// Simulates a whole cluster in one thread, with the machines and the transport of a real cluster
// and a clock of its own.

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
#include "simulation/sim_values.h"
#include "transport/inproc/network.h"

namespace tkv::simulation {

// The timeouts of every client; kGrace is ClientOptions::answer_grace.
inline constexpr Time kPatience = 15 * kSecond;
inline constexpr Time kServerPatience = 8 * kSecond;
inline constexpr Time kGrace = 1 * kSecond;
inline constexpr int kFailuresMax = 4;  // failures after which a driver leaves
inline constexpr size_t kTraceLines = 4000;

class Simulation;

// A process of the cluster: a machine and its endpoint in the network.
class Process final : public LinkHandler, public MessageTap {
 public:
  enum class Kind : uint8_t { kHead, kServer, kWorker, kObserver };

  //   index   rank of a worker, index of a server
  //   number  differs for each process of the simulation
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
  std::map<Time, uint64_t> readings;  // tickets of disk reads, by the time of their completion
};

inline constexpr int kCutting = 0, kReading = 1, kReleasing = 2;  // phases of a kSave
// The parts of a sparse key that a kSave reads, before it reads the values again by ids.
inline constexpr std::array kKeptParts = {ChunkState::kIds, ChunkState::kNotes, ChunkState::kValue,
                                          ChunkState::kCandidates, ChunkState::kCandidateNotes};

// The user of a client, which runs the program of the scenario.
struct Driver {
  struct Running {
    Step step;
    size_t key = 0;
    bool is_init = false;
    Bytes value;
    Block out;
    Push push;
    RowSet rows = kAllRows;      // rows that a pull requests
    uint64_t last_accepted = 0;  // the key's last accepted push when a pull began
    uint64_t round = 0;          // round of the key's last push when a pull began
    Time begin = 0;
    bool accepted = false;
    bool has_push = false;
    uint64_t logged_at = 0;      // position of its beginning in the history
    uint64_t recreations = 0;    // how often the key had been recreated when it began
    uint64_t last_push = 0;      // ordinal of the incarnation's last push before a kControl
    int phase = 0;               // phase of a kRecreate or kSave
    bool is_mistake = false;     // deletes a key that has just been deleted
    bool is_uneven = false;      // a read of a key that this life has to push again first
    uint64_t failed_pushes = 0;  // of the key when a read began
    // For a kSave that reads: the saved states, and for a sparse key the parts read so far.
    std::shared_ptr<const std::vector<ChunkState>> states;
    std::map<uint64_t, Block> parts;
    size_t next_part = 0;
  };
  Process* process = nullptr;
  Rank rank = kNoRank;
  Time born = 0;
  size_t next_init = 0;         // index of the next key to init
  size_t next_step = 0;         // index in Scenario::steps
  size_t step_count = 0;        // number of steps until it leaves
  bool started = false;         // all inits have ended, and rounds_at_start is filled in
  bool opened_barrier = false;  // a later life has opened the barrier, to learn its round
  std::set<uint32_t> closing;   // stores that the driver has begun to close
  std::set<uint32_t> closed;
  bool was_early = false;  // has sent a CONTROL before its inits
  bool leaving = false;    // has begun to leave the job
  bool done = false;       // the simulation removes its process
  bool opened = false;     // an observer has opened the key that it pulls next
  size_t observed = 0;     // that key
  uint64_t ordinal = 0;    // of the last push of this incarnation
  int failures = 0;        // of its operations
  int recreate_phase = 0;  // of the kRecreate under way; 0: none
  // For each key, its round when this incarnation joined; last: the barrier.
  std::vector<uint64_t> rounds_at_start;
  std::map<size_t, uint64_t> recreations;    // how often a key has been recreated
  std::map<size_t, uint64_t> last_accepted;  // ordinal of the last accepted push of each key
  std::map<size_t, uint64_t> last_round;     // round of that push
  std::set<size_t> missing;                  // keys whose init failed
  std::deque<Running> refused;               // pushes that the program makes again
  std::map<size_t, uint64_t> failed_pushes;  // of each key
  std::map<OpId, Running> running;
};

class Simulation final : public FaultInjector, public ShardListener {
 public:
  explicit Simulation(const testing::SimulationOptions& options);
  ~Simulation() override;

  testing::SimulationReport Run();

  // ---- faults: see FaultInjector
  int64_t Delay(const std::string& from, const std::string& to, size_t bytes) override;
  int Copies(const std::string& from, const std::string& to) override;
  bool IsCut(const std::string& from, const std::string& to) override;
  // ---- checks: see ShardListener
  void Completed(const ShardCore& shard, const ChunkId& id, const Chunk& chunk) override;
  bool RefusesPush(const ShardCore& shard, const ChunkId& id) override;

 private:
  friend class Process;

  struct Planned {  // an event of a worker at a chosen time
    // A new incarnation begins; the newest one ends and its peers are not notified; or it loses the
    // connection to one server for a while.
    enum class Kind : uint8_t { kBegin, kEnd, kIsolate };
    Time at = 0;
    int rank = 0;
    Kind kind = Kind::kBegin;
  };
  struct Period {  // a fault that lasts for a while
    Fault::Kind kind;
    Time until;
    std::string from;  // empty: every process
    std::string to;
  };

  struct Body {                       // body of a push, as the driver made it
    std::weak_ptr<const void> owner;  // expired: the memory may have been reused
    size_t key = 0;
    Push push;
  };

  void Loop();
  Process* Add(Process::Kind kind, int index);
  //   silently  its peers do not notice that its connections have ended
  void Remove(Process* process, bool silently);
  void Dispatch(Process* process);  // delivers the output of its node
  // Adds an event to the report's hash and to the trace.
  void RecordEvent(Process* process, const char* what, uint64_t link);
  void Inject();
  void InjectOne(const Fault& fault);
  void StartWorker(int rank);
  Process* WorkerOf(int rank) const;  // its newest incarnation, or null
  void Kill(Process* worker, const Fault& fault, Random* choice);
  void HandlePlanned(const Planned& planned);
  void Drive(Driver* driver);
  bool StartNext(Driver* driver);
  Operation::Init InitOf(const SimKey& key) const;
  void StartInit(Driver* driver);
  bool StartEarlyControl(Driver* driver);
  bool IsClosed(const Driver& driver, uint32_t store) const;
  bool IsClosedForLaterLife(const Driver& driver, size_t key) const;
  void CheckStores();
  const Driver* DriverOf(Rank rank, const Epoch& epoch) const;
  void CheckStore(const Shard& shard, uint32_t server, const SimKey& key);
  RowSet AskedRows(const Driver& driver, const Step& step) const;
  bool StartStep(Driver* driver, const Step& step);
  bool StartRefused(Driver* driver);
  void KeepRefused(Driver* driver, const Driver::Running& running);
  void StartRecreate(Driver* driver, const Step& step);
  void StartRelease(Driver* driver, size_t key);
  bool StartRead(Driver* driver, Driver::Running saved);
  bool ChooseRows(const Driver& driver, Driver::Running* saved, Operation::Read* read) const;
  void CheckSave(const Driver& driver, const Driver::Running& running, const Outcome& outcome);
  void OnOutcome(Driver* driver, const Outcome& outcome);
  void CheckFailure(const Driver& driver, const Driver::Running& running, const Error& error);
  OpId Begin(Driver* driver, Operation operation, Driver::Running running);
  Life LifeOf(const Driver& driver) const;
  // Returns the key and the push that a PUSH belongs to.
  std::optional<std::pair<size_t, Push>> PushOf(const Driver& driver, const Message& message) const;
  std::vector<const Shard*> Shards() const;
  void Record(const Driver& driver, const Driver::Running& running, HistoryEvent::Kind kind,
              uint64_t end, uint64_t round);
  bool IsLost(const SimKey& key) const;  // a server of the key has died
  bool HasUnknownEnd() const;            // a worker has ended before it joined
  bool WasInjected(std::initializer_list<Fault::Kind> kinds) const;  // one of these faults
  void CheckMemory();
  void CheckParked();
  void CheckAtEnd();
  void Violate(const std::string& text);
  const Epoch& HeadEpoch() const;
  std::string AddressOf(const tkv::Peer& peer) const;

  testing::SimulationOptions options_;
  Scenario scenario_;
  Model model_;
  Random random_;
  Time now_ = 0;
  uint64_t events_ = 0;
  uint64_t process_count_ = 0;
  std::unique_ptr<InprocNetwork> network_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<Process*> servers_;  // servers by index; null: dead
  Process* head_ = nullptr;
  std::map<Process*, Driver> drivers_;
  std::vector<Period> periods_;
  std::map<size_t, History> histories_;  // histories of the keys with exact reads
  uint64_t logged_ = 0;
  std::set<Fault::Kind> recent_;  // faults that were active lately
  Time recent_until_ = 0;
  size_t next_fault_ = 0;
  std::vector<Planned> planned_;  // planned events of workers
  // For each store, the ranks that have begun to close it.
  std::map<uint32_t, std::set<Rank>> closers_;
  int refusals_left_ = 0;               // pushes that servers without memory still refuse
  int isolations_ = 0;                  // kIsolate faults that wait for the next CONTROL
  std::map<const void*, Body> bodies_;  // bodies of pushes, by owner
  // All pushes that drivers have begun, with their keys.
  std::set<std::pair<size_t, Push>> started_;
  std::map<KeyId, size_t> key_index_;
  // Ranks that have entered each barrier, by its number.
  std::map<uint64_t, std::set<Rank>> barriers_;
  // For each worker, by address, the earliest time of the next cut.
  std::map<std::string, Time> next_cut_from_head_;
  // A barrier has failed on some worker; barrier numbers of ranks differ from then on.
  bool has_barrier_failed_ = false;
  Epoch last_epoch_;
  uint64_t epoch_number_ = 0;  // epoch of the head
  Time epoch_since_ = 0;       // time when that epoch began
  testing::SimulationReport report_;
  std::deque<std::string> trace_;
  std::map<std::array<std::string, 4>, uint64_t> coverage_;  // fault, receiver, message, state
};

}  // namespace tkv::simulation
