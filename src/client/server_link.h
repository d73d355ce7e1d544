// A client's side of its session with one server: what waits to leave, what has left and is not
// answered, the limits of both (window, credit, pulled bytes), and when the server is dialed and
// pinged.  Of keys it sees the places of their chunks, and nothing else.

#pragma once

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "metrics/counters.h"
#include "wire/backoff.h"
#include "wire/version.h"

namespace tkv {

using OpId = uint64_t;  // grows with each operation of a client
inline constexpr OpId kNoOp = 0;

// What there is to do when a server's values are lost.
inline constexpr const char* kStartAgain =
    "; the job cannot go on: start it again from your checkpoint";

// Why a message was sent.
enum class Purpose : uint8_t {
  kOp,      // for an operation
  kReady,   // a push waits for the version that it follows
  kJoin,    // finding the place in a key after a new life
  kStatus,  // asks whose push a round waits for, to tell the user
  kCancel,
};

struct Outgoing {
  Message message;
  OpId op = kNoOp;
  int priority = 0;
  Purpose purpose = Purpose::kOp;
  enum class Pulled : uint8_t { kNotCounted, kWaiting, kReady };
  Pulled pulled = Pulled::kNotCounted;  // which limit its answer counts against
  size_t pull_bytes = 0;
};

// One chunk of a key, as a client knows it.
struct ChunkPlace {
  uint32_t server = 0;
  uint64_t version = 0;  // the newest that is known
  uint64_t last_push_seq = 0;
  uint32_t queued_pushes = 0;
  bool asked = false;      // for a version, with NO_BODY
  bool unbounded = false;  // asking has failed: the next pull leaves and fails by itself
};

class ChunkPlaces {
 public:
  struct Found {
    ChunkPlace* place = nullptr;  // null: there is no such chunk any more
    const KeyMeta* meta = nullptr;
  };
  virtual Found PlaceOf(const KeyId& key, uint32_t chunk) = 0;
  // Asks its server for this version, once.
  virtual void AskFor(const KeyId& key, uint32_t chunk, uint64_t version) = 0;

 protected:
  ~ChunkPlaces() = default;
};

struct LinkLimits {
  Time server_patience = 30 * kSecond;
  Time ping_after = 5 * kSecond;              // of silence on a link that owes an answer
  size_t pull_bytes_max = size_t{256} << 20;  // of answers under way, per server
};

// What a link works with during one event.
struct LinkTurn {
  const LinkLimits& limits;
  Role role;
  Time now;
  Time* next_timer;
  ChunkPlaces* places;
  Effects* effects;

  void Rearm(Time at) const { *next_timer = std::min(*next_timer, at); }
};

class ServerLink {
 public:
  static constexpr uint64_t kWindow = 1024;
  enum class State : uint8_t { kIdle, kDialing, kHello, kOpen, kDead };

  explicit ServerLink(uint32_t server) : server_(server) {}

  uint32_t server() const { return server_; }
  State state() const { return state_; }
  LinkId link() const { return link_; }
  uint64_t incarnation() const { return incarnation_; }  // of the server; 0: not known yet
  uint64_t features() const { return features_; }        // of the server
  // Returns true unless the server is known to be one that keeps no steps of pushes.
  bool TakesSteps() const { return incarnation_ == 0 || (features_ & kStepsFeature) != 0; }
  const std::optional<Error>& dead() const { return dead_; }  // why nothing more can be done here
  size_t unaccepted_bytes() const { return unaccepted_bytes_; }
  bool busy() const { return !sent_.empty() || is_queued(); }
  bool has_sent() const { return !sent_.empty(); }
  bool Awaits(uint64_t seq) const { return sent_.contains(seq); }
  // Every mutating operation below it has been answered.
  uint64_t Low();

  // For those who look: notes what the queues wait for when all has left that could, and tells what
  // has been counted.
  void NoteWait(Time now, WaitCounts* waits);
  void AddStats(Time now, StoreStats* stats) const;
  std::optional<Time> SinceLastWord(Time now) const;  // of the server's; nothing: it has said none

  // ---- the connection
  // Dials the server where it is time to; `is_there`: the head says that it lives.
  void Connect(const LinkTurn& turn, bool is_there);
  void Opened(LinkId link, const LinkTurn& turn);
  // The server has said WELCOME: what is not answered is sent again, in order.
  void Welcomed(const Welcome& welcome, const LinkTurn& turn);
  void Heard(Time now) {
    last_heard_ = now;
    counts_.was_heard = true;
  }
  // Keeps what this machine lacks for a connection, for the error of the operations that wait.
  void NoteLack(const std::string& what) { lack_ = ": " + what; }
  // The connection is lost, or could not be made.
  void Lost(const LinkTurn& turn);
  // Closes it on this side.
  void Close(Effects* effects);
  void Die(const Error& error, Effects* effects);
  // Where the server has been out of reach for its patience: why all that waits for it is to end.
  std::optional<Error> OutOfReach(const LinkTurn& turn);
  // Pings a server that owes something, and gives up a connection that is silent.
  void Ping(const LinkTurn& turn);
  void Rearm(const LinkTurn& turn) const;

  // Whether it is to be looked at when the event ends; Mark is true where it was not.
  bool Mark() { return !std::exchange(is_marked_, true); }
  void Unmark() { is_marked_ = false; }

  // ---- messages
  // Larger priorities first; equal ones, and those of one key, in the order in which they came.
  void Queue(Outgoing outgoing, ChunkPlaces* places);
  // Sends what may leave, where the connection is open.
  void Send(const LinkTurn& turn);
  // The message that this answers.
  std::optional<Outgoing> Take(uint64_t seq);
  const Outgoing* FindSent(uint64_t seq) const;
  // Everything, in order: first what has left, so many of them, then what waits.
  std::vector<Outgoing> TakeAll(size_t* sent_count);
  void Forget() { TakeAll(nullptr); }
  void PutFirst(Outgoing outgoing) { pushes_.push_front(std::move(outgoing)); }
  // The answer to ChunkPlaces::AskFor has come: pulls of the chunk that wait for it may leave.
  void Asked(const KeyId& key, uint32_t chunk);
  // Sequence numbers of what has left, in order.
  template <typename F>
  std::vector<uint64_t> SentWhere(const F& is_meant) const {
    std::vector<uint64_t> seqs;
    seqs.reserve(sent_.size());
    for (const auto& [seq, sent] : sent_) {
      if (is_meant(sent)) seqs.push_back(seq);
    }
    std::sort(seqs.begin(), seqs.end());
    return seqs;
  }
  template <typename F>
  const Outgoing* FindSentWhere(const F& is_meant) const {
    for (const auto& [seq, sent] : sent_) {
      if (is_meant(sent)) return &sent;
    }
    return nullptr;
  }
  template <typename F>
  void EraseWaiting(const F& is_meant) {
    std::erase_if(pulls_, is_meant);
    std::erase_if(ready_pulls_, is_meant);
    for (auto chunk = asking_pulls_.begin(); chunk != asking_pulls_.end();) {
      std::erase_if(chunk->second, is_meant);
      chunk = chunk->second.empty() ? asking_pulls_.erase(chunk) : std::next(chunk);
    }
    std::erase_if(pushes_, is_meant);
  }
  // Every message that carries something, whether it has left or not.
  template <typename F>
  void ForEachPush(const F& f) {
    for (Outgoing& waiting : pushes_) f(&waiting);
    for (auto& [seq, sent] : sent_) f(&sent);
  }

 private:
  friend class StateWriter;  // for checks: compares what machines remember
  // Of pushes that have left, where priorities are used: an urgent one waits behind no more.
  static constexpr uint64_t kPriorityBytes = uint64_t{16} << 20;

  void SendPushes(const LinkTurn& turn);
  bool is_queued() const {
    return !pushes_.empty() || !pulls_.empty() || !ready_pulls_.empty() || !asking_pulls_.empty();
  }
  template <typename F>
  void ForEachWaiting(const F& f) const;
  static void Insert(Outgoing outgoing, std::deque<Outgoing>* queue);
  void SendPulls(const LinkTurn& turn);
  void SendReadyPulls(const LinkTurn& turn);
  void Judge(Outgoing pull, const LinkTurn& turn);
  static bool CountPull(Outgoing::Pulled as, size_t* used, Outgoing* pull, const LinkTurn& turn);
  void Leave(Outgoing outgoing, const LinkTurn& turn);
  static void SetNeed(ChunkPlaces::Found found, Purpose purpose, Role role, Message* message);
  void Uncount(const Outgoing& sent);

  uint32_t server_ = 0;
  State state_ = State::kIdle;
  LinkId link_ = kNoLink;
  uint64_t incarnation_ = 0;
  uint64_t features_ = 0;
  uint64_t credit_bytes_ = 0;
  uint64_t next_seq_ = 1;
  size_t unaccepted_bytes_ = 0;    // of bodies that have left
  size_t waiting_pull_bytes_ = 0;  // of pulls that may be parked
  size_t ready_pull_bytes_ = 0;    // of pulls that are answered at once
  std::optional<Error> dead_;
  bool is_marked_ = false;
  bool has_priorities_ = false;  // some that are not 0 have been seen

  std::deque<Outgoing> pushes_;  // mutating operations, and pulls that follow them
  std::deque<Outgoing> pulls_;   // other operations, not looked at since the connection is open
  // Pulls beyond the limit of bytes: those that would be answered at once, and those that wait with
  // NO_BODY for a version of their chunk.
  std::deque<Outgoing> ready_pulls_;
  std::map<std::pair<KeyId, uint32_t>, std::vector<Outgoing>> asking_pulls_;
  boost::unordered_flat_map<uint64_t, Outgoing> sent_;  // by seq
  std::deque<uint64_t> mutating_;                       // seqs that have left, in order

  std::string lack_;          // of this machine, since there is no connection; empty: nothing known
  Time down_since_ = kNever;  // kNever: connected, or never needed
  Time next_dial_ = kNever;
  Backoff backoff_;
  Time open_since_ = 0;
  Time last_heard_ = 0;
  Time next_ping_ = kNever;

  // For those who look; nothing that the client does depends on these.
  struct Counts {
    CurrentWait wait;        // of what is queued
    uint64_t welcomes = 0;   // connections that have been open
    uint64_t resends = 0;    // messages
    bool was_heard = false;  // last_heard_ is the moment of a word of the server's
  };
  Counts counts_;
};

const char* NameOf(ServerLink::State state) noexcept;

}  // namespace tkv
