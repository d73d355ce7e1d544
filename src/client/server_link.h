// A client's side of its session with one server: the queued messages, the unanswered messages, and
// their limits (window, credit, pulled bytes).  The link also decides when to dial and to ping.
//
// A link knows nothing of keys but the numbers of their chunks' servers and versions.

#pragma once

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/operation.h"
#include "metrics/counters.h"
#include "wire/backoff.h"
#include "wire/version.h"

namespace tkv {

// The end of error messages when a server's values are lost: the remedy.
inline constexpr const char* kStartAgain =
    "; the job cannot go on: start it again from your checkpoint";

// Why a message was sent.
enum class Purpose : uint8_t {
  kOp,      // for an operation
  kReady,   // waits, with NO_BODY, for a version that a push or a pull needs
  kJoin,    // finds the current round of a key, in a later life or after a failed push
  kStatus,  // asks which workers' pushes a round lacks, for a notice or an error
  kCancel,
};

struct Outgoing {
  Message message;
  OpId op = kNoOp;
  int priority = 0;
  Purpose purpose = Purpose::kOp;
  // The limit that a pull counts against: that of pulls which wait for a version at the server, or
  // that of pulls which are answered at once.
  enum class Pulled : uint8_t { kNotCounted, kWaiting, kReady };
  Pulled pulled = Pulled::kNotCounted;
  size_t pull_bytes = 0;  // of the message and its answer
};

// A chunk of a key, as the client knows it.
struct KnownChunk {
  uint32_t server = 0;
  uint64_t version = 0;        // the newest known one
  uint64_t last_push_seq = 0;  // of the last push that was sent to this chunk
  uint32_t queued_pushes = 0;  // not yet sent
  bool asked = false;          // a pull with NO_BODY waits for a version
  bool unbounded = false;      // that pull has failed: later pulls ignore the limits and may fail
};

// All chunks, as a link sees them.
class KnownChunks {
 public:
  struct Found {
    KnownChunk* chunk = nullptr;  // null: the chunk no longer exists
    const KeyMeta* meta = nullptr;
  };
  virtual Found ChunkOf(const KeyId& key, uint32_t chunk) = 0;
  // Asks the chunk's server to report this version, unless such a request is under way.
  virtual void AskFor(const KeyId& key, uint32_t chunk, uint64_t version) = 0;

 protected:
  ~KnownChunks() = default;
};

struct LinkLimits {
  Time server_patience = 30 * kSecond;
  Time ping_after = 5 * kSecond;              // of silence on a link that owes an answer
  size_t pull_bytes_max = size_t{256} << 20;  // of answers under way, per server
};

// The surroundings of a link during one event.
struct LinkTurn {
  const LinkLimits& limits;
  Role role;
  Time now;
  Time* next_timer;
  KnownChunks* chunks;
  Effects* effects;

  void Rearm(Time at) const { *next_timer = std::min(*next_timer, at); }
};

class ServerLink {
 public:
  // A mutating message is sent only while its sequence number is below Low() + kWindow.
  static constexpr uint64_t kWindow = 1024;
  // kHello: connected, and waiting for the WELCOME.  kDead: given up for good.
  enum class State : uint8_t { kIdle, kDialing, kHello, kOpen, kDead };

  explicit ServerLink(uint32_t server) : server_(server) {}

  uint32_t server() const { return server_; }
  State state() const { return state_; }
  LinkId link() const { return link_; }
  uint64_t incarnation() const { return incarnation_; }  // of the server; 0: not known yet
  uint64_t features() const { return features_; }        // of the server
  // Returns false only if the server said in its first WELCOME that no key had a push.
  bool has_begun() const { return has_begun_; }
  // Returns false if the server is known not to keep the steps of pushes.
  bool TakesSteps() const { return incarnation_ == 0 || (features_ & kStepsFeature) != 0; }
  // Returns false if the server is known not to compare the optimizers of workers.
  bool TakesRules() const { return incarnation_ == 0 || (features_ & kOfRuleFeature) != 0; }
  // Returns false if the server is known not to take the step of restored values.
  bool RestoresSteps() const {
    return incarnation_ == 0 || (features_ & kRestoresStepsFeature) != 0;
  }
  const std::optional<Error>& dead() const { return dead_; }  // why the server was given up
  size_t unaccepted_bytes() const { return unaccepted_bytes_; }
  // Returns true if a message is queued or unanswered.  Only a busy link dials and pings.
  bool busy() const { return !sent_.empty() || is_queued(); }
  bool has_unanswered() const { return !sent_.empty(); }  // sent messages
  bool Awaits(uint64_t seq) const { return sent_.contains(seq); }
  // Returns the number of the oldest unanswered mutating message, or of the next message to send.
  uint64_t Low();

  // Notes why the queues wait.  Call it after Send.
  void NoteWait(Time now, WaitCounts* waits);
  void AddStats(Time now, StoreStats* stats) const;
  // Returns the time since the server's last message, or nullopt if it has sent none.
  std::optional<Time> SinceLastWord(Time now) const;

  // ---- the connection
  // Dials the server if it is time to.
  //   is_there  the head reports the server alive
  void Connect(const LinkTurn& turn, bool is_there);
  // Notes the connection, on which the client sends HELLO.
  void Opened(LinkId link, const LinkTurn& turn);
  // Opens the session after the server's WELCOME: sends unanswered messages again, in order.
  void Welcomed(const Welcome& welcome, const LinkTurn& turn);
  void Heard(Time now) {
    last_heard_ = now;
    counts_.was_heard = true;
  }
  // Keeps the name of the resource that a connection needs and this machine lacks, for errors.
  void NoteLack(const std::string& reason) { lack_ = ": " + reason; }
  // Handles a lost connection or a failed dial: sets the time of the next dial.
  void Lost(const LinkTurn& turn);
  // Closes the connection on this side.  The link must not be used again.
  void Close(Effects* effects);
  // Gives the server up for good, with the reason for `dead`, and closes the connection.
  void Die(const Error& error, Effects* effects);
  // Returns the error for all waiting operations if the server has been out of reach for its
  // patience, else nullopt.  The patience then begins anew.
  std::optional<Error> OutOfReach(const LinkTurn& turn);
  // Pings the server, and closes a connection on which an owed answer is missing for too long.
  void Ping(const LinkTurn& turn);
  // Sets the timer for the link's next dial, ping or OutOfReach.
  void Rearm(const LinkTurn& turn) const;

  // Marks the link for ServerSessions::Send at the end of the event.  Returns false if it was
  // marked already.
  bool Mark() { return !std::exchange(is_marked_, true); }
  void Unmark() { is_marked_ = false; }

  // ---- messages
  // Queues a message, larger priorities first.  Messages of equal priority or of one key keep their
  // order.
  void Queue(Outgoing outgoing, KnownChunks* chunks);
  // Sends the queued messages that the limits allow, if the connection is open.
  void Send(const LinkTurn& turn);
  // Removes and returns the message that an answer with this number belongs to.
  std::optional<Outgoing> Take(uint64_t seq);
  const Outgoing* FindSent(uint64_t seq) const;
  // Removes and returns all messages, in order: first the sent ones, then the queued ones.
  //   sent_count  receives the number of the sent ones
  std::vector<Outgoing> TakeAll(size_t* sent_count);
  void Forget() { TakeAll(nullptr); }
  // Queues a mutating message before all others.
  void QueueFirst(Outgoing outgoing) { pushes_.push_front(std::move(outgoing)); }
  // Queues again the pulls that waited for the answer to KnownChunks::AskFor, which has arrived.
  void ReleasePulls(const KeyId& key, uint32_t chunk);
  // Returns the sequence numbers of the matching sent messages, in order.
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
  // Removes the matching messages that were not sent.
  template <typename F>
  void EraseQueued(const F& is_meant) {
    std::erase_if(pulls_, is_meant);
    std::erase_if(ready_pulls_, is_meant);
    for (auto chunk = asking_pulls_.begin(); chunk != asking_pulls_.end();) {
      std::erase_if(chunk->second, is_meant);
      chunk = chunk->second.empty() ? asking_pulls_.erase(chunk) : std::next(chunk);
    }
    std::erase_if(pushes_, is_meant);
  }
  // Calls `f` for every message that may carry a push's body: all sent ones, and queued pushes.
  template <typename F>
  void ForEachPush(const F& f) {
    for (Outgoing& waiting : pushes_) f(&waiting);
    for (auto& [seq, sent] : sent_) f(&sent);
  }

 private:
  friend class StateWriter;  // for checks: compares the states of machines
  // The bound of unaccepted bytes if priorities are used: an urgent push waits behind at most that
  // many.
  static constexpr uint64_t kPriorityBytes = uint64_t{16} << 20;

  void SendPushes(const LinkTurn& turn);
  bool is_queued() const {
    return !pushes_.empty() || !pulls_.empty() || !ready_pulls_.empty() || !asking_pulls_.empty();
  }
  template <typename F>
  void ForEachQueued(const F& f) const;
  static void Insert(Outgoing outgoing, std::deque<Outgoing>* queue);
  void SendPulls(const LinkTurn& turn);
  void SendReadyPulls(const LinkTurn& turn);
  void SendOrDelay(Outgoing pull, const LinkTurn& turn);
  static bool CountPull(Outgoing::Pulled as, size_t* used, Outgoing* pull, const LinkTurn& turn);
  void SendNow(Outgoing outgoing, const LinkTurn& turn);
  static void SetNeed(KnownChunks::Found found, Purpose purpose, Role role, Message* message);
  void Uncount(const Outgoing& sent);

  uint32_t server_ = 0;
  State state_ = State::kIdle;
  LinkId link_ = kNoLink;
  uint64_t incarnation_ = 0;
  uint64_t features_ = 0;
  bool has_begun_ = true;
  uint64_t credit_bytes_ = 0;
  uint64_t next_seq_ = 1;
  size_t unaccepted_bytes_ = 0;    // of bodies that were sent
  size_t waiting_pull_bytes_ = 0;  // of pulls that the server may park
  size_t ready_pull_bytes_ = 0;    // of pulls that are answered at once
  std::optional<Error> dead_;
  bool is_marked_ = false;
  bool has_priorities_ = false;  // a message had a priority other than 0

  std::deque<Outgoing> pushes_;  // mutating operations, and pulls that follow them
  std::deque<Outgoing> pulls_;   // other messages, which SendPulls has yet to send or delay
  // Pulls beyond the limit of bytes: first the pulls that would be answered at once, then the pulls
  // for whose version of a chunk a request with NO_BODY waits.
  std::deque<Outgoing> ready_pulls_;
  std::map<std::pair<KeyId, uint32_t>, std::vector<Outgoing>> asking_pulls_;
  boost::unordered_flat_map<uint64_t, Outgoing> sent_;  // by seq
  std::deque<uint64_t> mutating_;                       // sent seqs, in order

  std::string lack_;          // the resource that this machine lacks; empty: none known
  Time down_since_ = kNever;  // kNever: connected, or never needed
  Time next_dial_ = kNever;
  Backoff backoff_;
  Time open_since_ = 0;
  Time last_heard_ = 0;
  Time next_ping_ = kNever;

  // Statistics.  No decision of the client depends on them.
  struct Counts {
    CurrentWait wait;        // the reason why messages are queued
    uint64_t welcomes = 0;   // connections opened so far
    uint64_t resends = 0;    // messages
    bool was_heard = false;  // the server has sent a message; last_heard_ is then its time
  };
  Counts counts_;
};

const char* NameOf(ServerLink::State state) noexcept;
// Returns the error for a server that is too old for a key by rows.
Error CannotSaveRows(uint32_t server);

}  // namespace tkv
