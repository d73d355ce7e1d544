// One state of a whole job: machines, what is on its way between them, what their users do, and
// what has been seen so far.  A value: a copy shares all that it does not change.

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
// The smallest chunk; the second one holds the counts only.
inline constexpr uint32_t kChunkElements = 1024;

// Each push of each life of each worker is one element of the value, which says how often it
// counts.
inline constexpr size_t kPushes = 64;
inline constexpr size_t kElements = kChunkElements + kPushes;
using Counts = std::array<uint8_t, kPushes>;
inline constexpr int kOrdinals = 16;  // of a life
constexpr size_t PushId(int rank, int life, int ordinal) {
  return static_cast<size_t>(rank * 32 + life * kOrdinals + ordinal - 1);
}

inline const std::string& KeyName() {
  static const std::string name = CanonicalKey(0, KeyView("w"));
  return name;
}

// What happens next.
struct Action {
  enum class Kind : uint8_t {
    kDeliver,    // the next frame of a wire, in one direction
    kTick,       // the time of an actor comes
    kLose,       // a connection, with what is on its way
    kKill,       // a worker; bit i of `detail`: what is on its way to server i is lost
    kVerdict,    // the head is told that the process of a worker has ended
    kRestart,    // a later life of a worker
    kSkipEpoch,  // a wire from the head forgets one that is followed by another
  };
  Kind kind{};
  uint8_t index = 0;  // wire, actor or rank
  uint8_t detail = 0;
};

class World {
 public:
  // A job whose workers have joined; where no program begins with I, with the key.
  explicit World(const Scope* scope);

  std::vector<Action> Actions() const;
  // The first rule that is broken, or nothing.
  std::string Apply(const Action& action);
  // Nothing happens any more: whether everybody has come to an end.
  std::string CheckEnd() const;
  Fingerprint fingerprint() const;
  std::string Describe(const Action& action) const;

 private:
  enum class Kind : uint8_t { kHead, kServer, kWorker, kObserver };
  struct User {  // of a worker or observer
    int life = 0;
    size_t next = 0;  // in the program
    OpId op = kNoOp;  // under way
    char verb = 0;    // of it
    int ordinal = 0;  // of its last push in the program
    bool accepted = false;
    bool opened = false;  // the key is known
    bool warm = false;    // and every server
    bool over = false;    // the program has ended, or an operation has failed
    int barriers = 0;     // begun
    uint64_t base = 0;    // the round that a later life has found
  };
  struct Seen {  // of one chunk, for each version
    std::vector<Counts> values;
    std::vector<uint64_t> pushes;  // that it has and the one before has not
    std::vector<bool> adds;        // whether it was added to the one before
  };
  struct Actor {
    Kind kind{};
    int index = 0;
    uint64_t number = 0;
    std::shared_ptr<Node> node;  // changed only by the world that has just copied it
    Time clock = 0;
    User user;
    Block scratch;                    // where the user's pulls land, shared by all worlds
    std::string out;                  // what this world has there
    std::map<uint32_t, Seen> chunks;  // of a server
    Fingerprint hash;
  };
  using ActorPtr = std::shared_ptr<const Actor>;
  struct Packet {
    Frame frame;
    Fingerprint hash;
    bool is_epoch = false;
  };
  using PacketPtr = std::shared_ptr<const Packet>;  // null: the connection ends
  struct End {
    int actor = -1;  // -1: gone
    LinkId link = kNoLink;
    std::vector<PacketPtr> arriving;
    bool landed = false;  // the head and bodies of the first one have been taken
  };
  struct Wire {
    std::array<End, 2> ends;  // the first one has dialed
    Fingerprint hash;

    void Seal();
  };
  using WirePtr = std::shared_ptr<const Wire>;
  struct Sent {  // by an actor, on one of its links; no packet: it has closed the link
    LinkId link = kNoLink;
    PacketPtr packet;
  };
  // What an event does to an actor, where it does nothing to others and nobody else is looked at:
  // the same event in the same state does the same in every world.
  struct Step {
    ActorPtr after;
    std::vector<Sent> sent;
  };
  struct Memory {
    boost::unordered_flat_map<Fingerprint, Step> steps;
  };
  class Recorder;

  int AddActor(Kind kind, int index, int life);
  Actor* Edit(int actor);
  void Seal();
  void Kill(int rank, unsigned lost_servers);
  void Deliver(size_t wire, size_t side);
  void Tick(int actor);
  bool Recall(int actor, const Fingerprint& event);
  Wire* EditWire(size_t wire);
  void Send(int actor, const Sent& sent);
  void CloseEnd(size_t wire, size_t side);
  void Dispatch(int actor);
  void Settle();
  void RunUser(int actor);
  bool BeginNext(int actor);
  void Begin(int actor, char verb);
  void OnOutcome(int actor, const Outcome& outcome);
  static std::string LookAtSum(const Chunk& chunk, const Seen& seen, Counts* counts,
                               uint64_t* pushes);
  std::string LookAtBucket(uint32_t bucket, const Chunk& chunk, const Seen& seen, Counts* counts,
                           uint64_t* pushes) const;
  void Completed(const Shard& shard, const ChunkId& id, const Chunk& chunk);
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
  std::vector<ActorPtr> actors_;  // null: ended
  std::vector<Actor*> edited_;    // during one action; null: shared
  std::vector<WirePtr> wires_;
  std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();  // of all copies
  // The step that is being made, to be remembered if it is one of its kind.
  int step_actor_ = -1;
  Fingerprint step_key_;
  std::vector<Sent> step_sent_;
  bool step_is_local_ = false;
  int losses_ = 0, kills_ = 0;
  // Of each rank: how many lives it has had, the life of whose end the head is not told yet, and
  // whether the first one has ended or is held for dead.
  std::array<uint8_t, 2> lives_{1, 1};
  std::array<uint64_t, 2> verdict_{0, 0};
  std::array<uint8_t, 2> deaths_{0, 0};
  std::array<uint64_t, 2> control_from_{0, 0};  // round from which a rank's CONTROL counts; 0: none
  std::array<uint8_t, 2> control_done_{0, 0};
  bool held_ = true;  // programs wait until the job is there
  std::string violation_;
};

}  // namespace tkv::exploration
