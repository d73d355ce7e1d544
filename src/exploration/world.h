// A state of a whole job: machines, frames in transit, the programs of the users, and all versions
// seen so far.  A value type: a copy shares all that it does not change.

#pragma once

#include <array>
#include <boost/unordered/unordered_flat_map.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exploration/fingerprint.h"
#include "exploration/scope.h"

namespace tkv::exploration {

inline constexpr uint32_t kServers = 2;
inline const Placement kPlacement{1, kServers, {}};
inline constexpr int kWorkers = 2;
inline constexpr uint32_t kChunks = 2;
// Elements of the smallest chunk.  The first chunk has this size; the second one holds only the
// counts.
inline constexpr uint32_t kChunkElements = 1024;

// Number of distinct pushes.  Each push of each incarnation of a worker has one element of the
// value, which says how often the push counts.
inline constexpr size_t kPushes = 64;
inline constexpr size_t kElements = kChunkElements + kPushes;
using Counts = std::array<uint8_t, kPushes>;
inline constexpr int kOrdinals = 16;  // pushes of an incarnation
constexpr size_t PushId(int rank, int life, int ordinal) {
  return static_cast<size_t>(rank * 32 + life * kOrdinals + ordinal - 1);
}

inline const std::string& KeyName() {
  static const std::string name = CanonicalKey(0, KeyView("w"));
  return name;
}

// An event that may happen next.
struct Action {
  enum class Kind : uint8_t {
    kDeliver,    // delivers the next frame of a wire, in one direction
    kTick,       // advances an actor's clock to its next deadline
    kLose,       // loses a connection and the frames in transit on it
    kKill,       // kills a worker; bit i of `detail`: frames in transit to server i are lost
    kVerdict,    // tells the head that a worker's process has ended
    kRestart,    // starts a later incarnation of a worker
    kSkipEpoch,  // drops an EPOCH from the head that is followed by another
  };
  Kind kind{};
  uint8_t index = 0;  // number of a wire, an actor or a rank
  uint8_t detail = 0;
};

class World {
 public:
  // Makes a job whose workers have joined.  Its key exists unless a program begins with I.
  explicit World(const Scope* scope);

  std::vector<Action> Actions() const;
  // Performs an event and returns the first broken rule, or an empty text.
  std::string Apply(const Action& action);
  // Checks a state without further events: every program must have ended.  Returns the broken rule,
  // or an empty text.
  std::string CheckEnd() const;
  Fingerprint fingerprint() const;
  std::string Describe(const Action& action) const;

 private:
  enum class Kind : uint8_t { kHead, kServer, kWorker, kObserver };
  struct User {  // the user of a worker or observer
    int life = 0;
    size_t next = 0;  // position in the program
    OpId op = kNoOp;  // the running operation
    char verb = 0;    // letter of the running operation
    int ordinal = 0;  // ordinal of the user's last push in the program
    bool accepted = false;
    bool opened = false;  // the key is known to the client
    bool warm = false;    // the client is connected to every server
    bool over = false;    // the program has ended, or an operation has failed
    int barriers = 0;     // barriers that it has begun
    uint64_t base = 0;    // the key's round when a later incarnation joined
  };
  struct Seen {  // the history of one chunk, by version
    std::vector<Counts> values;
    std::vector<uint64_t> pushes;  // pushes that this version has and the previous one has not
    std::vector<bool> adds;        // true if the sum was added to the previous version
  };
  struct Actor {
    Kind kind{};
    int index = 0;
    uint64_t number = 0;
    std::shared_ptr<Node> node;  // changed only by the world that has just copied it
    Time clock = 0;
    User user;
    Block scratch;                    // target of the user's pulls, shared by all worlds
    std::string out;                  // contents of the target in this world
    std::map<uint32_t, Seen> chunks;  // chunks of a server
    Fingerprint hash;
  };
  using ActorPtr = std::shared_ptr<const Actor>;
  struct Packet {
    Frame frame;
    Fingerprint hash;
    bool is_epoch = false;
  };
  using PacketPtr = std::shared_ptr<const Packet>;  // null: the connection ends here
  struct End {
    int actor = -1;  // -1: closed
    LinkId link = kNoLink;
    std::vector<PacketPtr> arriving;
    bool landed = false;  // the head of the first packet has been delivered, its bodies not yet
  };
  struct Wire {
    std::array<End, 2> ends;  // the first end belongs to the actor that dialed
    Fingerprint hash;

    void Seal();
  };
  using WirePtr = std::shared_ptr<const Wire>;
  struct Sent {  // sent by an actor on one of its links; no packet: the link was closed
    LinkId link = kNoLink;
    PacketPtr packet;
  };
  // The effect of an event on an actor, if the event neither changes nor reads any other actor.
  // Then the same event in the same state has the same effect in every world.
  struct Step {
    ActorPtr after;
    std::vector<Sent> sent;
  };
  struct KnownSteps {  // by the state of the actor and the event
    boost::unordered_flat_map<Fingerprint, Step> by_event;
  };
  class Recorder;

  int AddActor(Kind kind, int index, int life);
  // Returns the actor for a change, and copies it first if other worlds share it.
  Actor* Edit(int actor);
  // Ends an action: computes the fingerprints of all edited actors and wires.
  void Seal();
  void Kill(int rank, unsigned lost_servers);
  //   side  the end of the wire that receives
  void Deliver(size_t wire, size_t side);
  void Tick(int actor);
  // Returns true if the event is a known step of the actor, and repeats the step's effect.
  bool RepeatKnownStep(int actor, const Fingerprint& event);
  Wire* EditWire(size_t wire);  // as Edit
  void Send(int actor, const Sent& sent);
  void CloseEnd(size_t wire, size_t side);  // the other end gets a null packet
  void Dispatch(int actor);                 // performs the output of its node
  void Settle();                            // dispatches all edited actors, and runs their users
  void RunUser(int actor);
  bool BeginNext(int actor);
  codec::Contribution PushedValue(const Actor& actor) const;
  void Begin(int actor, char verb);
  void OnOutcome(int actor, const Outcome& outcome);
  // Find the pushes that a new version is made of.  They return the broken rule, or an empty text.
  static std::string FindPushesInSum(const Chunk& chunk, const Seen& seen, Counts* counts,
                                     uint64_t* pushes);
  std::string FindPushesInBucket(uint32_t bucket, const Chunk& chunk, const Seen& seen,
                                 Counts* counts, uint64_t* pushes) const;
  void Completed(const ShardCore& shard, const ChunkId& id, const Chunk& chunk);
  void CheckAccepted(const Actor& actor, size_t push, uint64_t round);
  void CheckPull(const Actor& actor, uint64_t version);
  void CheckBarrier(const Actor& actor);
  void CheckFailure(const Actor& actor, const Error& error);
  int WorkerOf(int rank) const;
  const Actor* ServerOf(uint32_t chunk);
  std::string NameOf(int actor) const;
  void Violate(std::string text) {
    if (violation_.empty()) violation_ = std::move(text);
  }

  const Scope* scope_;
  std::vector<ActorPtr> actors_;  // null: the actor has ended
  std::vector<Actor*> edited_;    // actors copied during one action; null: still shared
  std::vector<WirePtr> wires_;
  // Shared by all copies of the world.
  std::shared_ptr<KnownSteps> known_steps_ = std::make_shared<KnownSteps>();
  // The step in progress, to be remembered if it is local to its actor.
  int step_actor_ = -1;
  Fingerprint step_key_;
  std::vector<Sent> step_sent_;
  bool step_is_local_ = false;
  int losses_ = 0, kills_ = 0;
  // For each rank: the number of its incarnations, the ended incarnation that the head does not
  // know of yet (0: none), and 1 if its first incarnation has ended or was declared dead.
  std::array<uint8_t, 2> lives_{1, 1};
  std::array<uint64_t, 2> verdict_{0, 0};
  std::array<uint8_t, 2> deaths_{0, 0};
  // Round from which a rank's CONTROL counts; 0: no CONTROL.
  std::array<uint64_t, 2> control_from_{0, 0};
  std::array<uint8_t, 2> control_done_{0, 0};
  bool held_ = true;  // programs wait until the job has started
  std::string violation_;
};

}  // namespace tkv::exploration
