// Counters of the work and the waits of a store since it was created.  docs/api.md lists each of
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

// The reason why a call, operation or message had to wait.
enum class WaitCause : uint8_t {
  kKey,       // a call: another thread of this process uses one of its keys
  kArray,     // a call: an asynchronous operation still reads or writes one of its arrays
  kAccepted,  // a push of foreign arrays: the servers have not accepted their bytes yet
  kAnswer,    // a call: its operations have not ended
  kRound,     // a push: the previous round is not known to be complete
  kPull,      // a push: an earlier pull of its key is not answered
  kOrder,     // an operation: earlier operations are not done
  kLink,      // messages for a server: there is no connection
  kCredit,    // messages for a server: it must first accept bytes that were sent
  kWindow,    // messages for a server: it must first answer operations
  kPullBytes  // messages for a server: pulls already request as many bytes as allowed
};
inline constexpr size_t kWaitCauses = 11;
TKV_API std::string_view Name(WaitCause cause) noexcept;

struct WaitStats {
  uint64_t count = 0;
  double seconds = 0;  // total of the waits that have ended
};

// The kinds of calls that are counted.
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
  kSave,  // also of states only
  kLoad
};
inline constexpr size_t kVerbs = 11;
TKV_API std::string_view Name(Verb verb) noexcept;

struct VerbStats {
  uint64_t calls = 0;
  uint64_t failed = 0;  // calls that failed, or whose ticket did
};

// Bytes of the arrays in calls.  Each array counts as many bytes as its key's value has.
struct UserBytes {
  uint64_t init_bytes = 0;
  uint64_t pushed_bytes = 0;
  uint64_t pulled_bytes = 0;
};

// Bytes sent and received over one connection, or over several.
struct TrafficStats {
  uint64_t wire_out_bytes = 0;  // through the socket, with frame headers and handshakes
  uint64_t wire_in_bytes = 0;
  uint64_t shared_out_bytes = 0;  // through shared memory
  uint64_t shared_in_bytes = 0;
  uint64_t encrypted_out_bytes = 0;  // the part of wire_out_bytes that TLS encrypted
  uint64_t encrypted_in_bytes = 0;
};

struct KeyStats {
  Key key;
  uint64_t rounds = 0;  // counted pushes of the key
  UserBytes bytes;
};

// The other side of a connection, as this process sees it.
struct PeerStats {
  std::string name;   // "server 0", "head"
  std::string state;  // of the connection: idle, dialing, hello, open or dead
  TrafficStats traffic;
  uint64_t connections = 0;      // connections that have been open
  uint64_t resends = 0;          // messages sent again after a connection was lost
  uint64_t queued_messages = 0;  // messages not sent yet
  uint64_t queued_bytes = 0;     // bytes of their bodies
  uint64_t unanswered_messages = 0;
  uint64_t unaccepted_bytes = 0;  // bodies sent that the server has not accepted yet
  double last_word_seconds = -1;  // since its last message; -1: none yet
};

struct StoreStats {
  // Largest number of keys in `keys`.
  static constexpr size_t kKeysMax = 100;

  // ---- of this store
  double age_seconds = 0;
  std::array<VerbStats, kVerbs> verbs{};  // by Verb
  UserBytes bytes;
  uint64_t rounds = 0;         // of all keys, including deleted ones
  uint64_t key_count = 0;      // existing keys
  std::vector<KeyStats> keys;  // those with the most bytes, the largest first

  // ---- of the worker, whose stores share its connections
  uint64_t operations_under_way = 0;
  TrafficStats traffic;  // of all connections so far
  uint64_t resends = 0;
  uint64_t reconnects = 0;       // connections to a peer after its first one
  std::vector<PeerStats> peers;  // the head and the servers; none in a store of one process
  // State of each rank, as last announced by the head: awaited, alive, dead or left.
  std::vector<std::string> workers;
  std::vector<std::string> servers;

  std::array<WaitStats, kWaitCauses> waits{};  // by WaitCause

  const VerbStats& of(Verb verb) const { return verbs[static_cast<size_t>(verb)]; }
  const WaitStats& of(WaitCause cause) const { return waits[static_cast<size_t>(cause)]; }
};

}  // namespace tkv
