// What a store has done and what it waits for, counted since it was made.  docs/api.md lists each of
// these numbers under the name that Python gives it.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tkv/api.h"
#include "tkv/key.h"

namespace tkv {

// Why something could not go on at once.
enum class WaitCause : uint8_t {
  kKey,       // a call: another thread of this process uses one of its keys
  kArray,     // a call: an asynchronous operation still reads or writes one of its arrays
  kAccepted,  // a push of foreign arrays: the servers do not hold their bytes yet
  kAnswer,    // a call: its operations have not ended
  kRound,     // a push: the round that it follows is not known to be complete
  kPull,      // a push: an earlier pull of its key is not answered
  kOrder,     // an operation: others that were given before it are not done
  kLink,      // messages for a server: there is no connection
  kCredit,    // messages for a server: as many bytes as it takes are not accepted
  kWindow,    // messages for a server: as many operations as it takes are not answered
  kPullBytes  // messages for a server: as many bytes as this process takes are asked for
};
inline constexpr size_t kWaitCauses = 11;
TKV_API std::string_view Name(WaitCause cause) noexcept;

struct WaitStats {
  uint64_t count = 0;
  double seconds = 0;  // of waits that have ended
};

// The verbs that are counted.
enum class Verb : uint8_t {
  kInit,
  kPush,
  kPull,
  kPushPull,
  kBroadcast,
  kBarrier,
  kDelete,
  kSetUpdater,
  kSetOptimizer,
  kSave,  // of states alone too
  kLoad
};
inline constexpr size_t kVerbs = 11;
TKV_API std::string_view Name(Verb verb) noexcept;

struct VerbStats {
  uint64_t calls = 0;
  uint64_t failed = 0;  // of them, or their tickets, with an error
};

// What the arrays of calls have in bytes: for each array of a call those of its key's value.
struct UserBytes {
  uint64_t init_bytes = 0;
  uint64_t pushed_bytes = 0;
  uint64_t pulled_bytes = 0;
};

// What has passed one connection, or several.
struct TrafficStats {
  uint64_t wire_out_bytes = 0;  // through the socket, heads of frames and handshakes included
  uint64_t wire_in_bytes = 0;
  uint64_t shared_out_bytes = 0;  // through shared memory
  uint64_t shared_in_bytes = 0;
  uint64_t encrypted_out_bytes = 0;  // of those through the socket, by TLS
  uint64_t encrypted_in_bytes = 0;
};

struct KeyStats {
  Key key;
  uint64_t rounds = 0;  // pushes of this store that count
  UserBytes bytes;
};

// The other side of a connection, as this process sees it.
struct PeerStats {
  std::string name;   // "server 0", "head"
  std::string state;  // of the connection: idle, dialing, hello, open, dead
  TrafficStats traffic;
  uint64_t connections = 0;      // that have been open
  uint64_t resends = 0;          // messages that were sent again after a connection was lost
  uint64_t queued_messages = 0;  // that have not left
  uint64_t queued_bytes = 0;     // bodies of them
  uint64_t unanswered_messages = 0;
  uint64_t unaccepted_bytes = 0;  // bodies that have left and that the server has not accepted
  double last_word_seconds = -1;  // since it was heard last; -1: never
};

struct StoreStats {
  // Of keys with the most bytes as many are told.
  static constexpr size_t kKeysMax = 100;

  // ---- of this store
  double age_seconds = 0;
  std::array<VerbStats, kVerbs> verbs{};  // by Verb
  UserBytes bytes;
  uint64_t rounds = 0;         // of all keys, deleted ones too
  uint64_t key_count = 0;      // keys there are
  std::vector<KeyStats> keys;  // those with the most bytes, the largest first

  // ---- of the worker, whose stores share its connections
  uint64_t operations_under_way = 0;
  TrafficStats traffic;  // of all connections that there have been
  uint64_t resends = 0;
  uint64_t reconnects = 0;       // connections after the first one with each peer
  std::vector<PeerStats> peers;  // the head and the servers; none in a store of one process
  // What the head has said of each rank: awaited, alive, dead or left.
  std::vector<std::string> workers;
  std::vector<std::string> servers;

  std::array<WaitStats, kWaitCauses> waits{};  // by WaitCause

  const VerbStats& of(Verb verb) const { return verbs[static_cast<size_t>(verb)]; }
  const WaitStats& of(WaitCause cause) const { return waits[static_cast<size_t>(cause)]; }
};

}  // namespace tkv
