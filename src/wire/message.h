// The messages of the protocol (docs/protocol.md), one for each operation and each reply.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "tensor/encoding.h"
#include "tkv/dtype.h"
#include "tkv/error.h"
#include "tkv/push_step.h"
#include "tkv/rows.h"
#include "tkv/shape.h"
#include "wire/key_id.h"
#include "wire/placement.h"
#include "wire/version.h"

namespace tkv {

using Rank = int32_t;
inline constexpr Rank kNoRank = -1;
inline constexpr Rank kWorkersMax = 4096;
inline constexpr uint32_t kServersMax = 4096;
inline constexpr size_t kAddressBytesMax = 1024;
inline constexpr size_t kFailureBytesMax = 1024;            // of the text of a failure
inline constexpr size_t kTracedBytesMax = size_t{1} << 20;  // of the spans of one TRACED
inline constexpr size_t kListedBytesMax = size_t{1} << 20;  // of the keys of one LISTED
inline constexpr size_t kProgramBytesMax = 64 << 10;        // of the text of an update program

// wire value: never renumber
enum class Type : uint8_t {
  kHello = 1,
  kInit = 2,
  kDescribe = 3,
  kStatus = 4,
  kPush = 5,
  kPull = 6,
  kCancel = 7,
  kControl = 8,
  kCommit = 9,
  kAbstain = 10,
  kDelete = 11,
  kEpoch = 12,
  kGoodbye = 13,
  kPing = 14,
  kWithdraw = 15,
  kClose = 16,
  kRelease = 17,
  kTrace = 18,
  kList = 19,

  kWelcome = 32,
  kOk = 33,
  kExists = 34,
  kMeta = 35,
  kStatusReply = 36,
  kAccepted = 37,
  kValue = 38,
  kPong = 39,
  kError = 40,
  kTraced = 41,
  kListed = 42,

  kRestore = 68,

  // Reserved: a peer that sends one gets an error.
  kStage = 64,
  kManifest = 65,
  kReplicate = 66,
  kSnapshot = 67,
  kRows = 69,
};

// "2bit"; of a number that has no name yet, "9".
std::string NameOf(Encoding encoding);
// Of one part of a contribution, as a server takes it.
inline constexpr size_t kPartBytesMax = size_t{256} << 20;

const char* Name(Type type) noexcept;
bool IsReply(Type type) noexcept;
// Whether a shard must do it once and only once.
bool IsMutating(Type type) noexcept;

// Bits of Message::flags; each has a meaning for the types that its comment names.
enum Flag : uint8_t {  // wire value: never renumber
  kNoBody = 1,         // PULL: wait only
  kOverwrite = 1,      // INIT: replaces what an earlier grant wrote
  kNoWait = 1,         // DESCRIBE: NotFound instead of parking
  kWithRule = 2,       // DESCRIBE: META has how the key is updated now, as its `own`
  kMayMake = 4,        // DESCRIBE: its worker has a value, and creates the key where OK answers it
  kBarrierKey = 1,     // PUSH: an internal key of zero bytes that the first push makes
  kOnlyListed = 1,     // CONTROL: of the synchronous keys that are there only those listed
  kHasScalars = 2,     // PUSH: `extra` holds hyperparameters
  kOfBirth = 4,        // PUSH, PULL, ABSTAIN, DELETE: `need` holds the birth of the key meant
  kCut = 8,          // PULL with kNoBody: the version that answers it is kept, to be read in parts
  kOfCut = 16,       // PULL: a part of what a kCut of this session has kept
  kRecord = 1,       // TRACE: this session wants spans to be kept from now on; else no longer
  kForget = 2,       // TRACE: it will not ask for those that are kept
  kFails = 8,        // PUSH with kBarrierKey: the round ends with the error in `extra`
  kUnlessDone = 64,  // PUSH with kFails: only where no push of the round has kDone
  kDone = 32,        // PUSH with kBarrierKey: its worker has done what the barrier is for
  kInStep = 128,     // PUSH: `extra` begins with its step; STATUS: STATUS_REPLY may end with one
  kAnyway = 32,      // PULL with kNoBody: also of a round whose update has failed
  kMore = 1,         // RESTORE of a key by rows: adds to the rows that one before it has put back
  kOnlyRows = 2,     // RESTORE of a key by rows: these rows alone begin anew, with the values here
  kOnlyValue = 4,    // RESTORE of a dense key: the value alone; states, counts and rounds stay
};

// One operation or reply.  What a field means depends on the type:
//   number   PUSH, RESTORE round; PULL, VALUE, ACCEPTED version; PULL with kOfCut a part (ChunkState);
//            INIT the number of its grant, 0 of rank 0 that needs none; OK of a DESCRIBE that number;
//            ABSTAIN last round; CANCEL seq; CONTROL, COMMIT, WITHDRAW generation; EPOCH epoch;
//            GOODBYE 1 of a worker that has failed, else 0; ERROR code; TRACE the first span that is
//            asked for; TRACED the next one after those here; LISTED 1 where there are more keys
//   key      LIST: the last one that is known already; {}: none
//   chunk    of the key; CONTROL, CLOSE, RELEASE, DESCRIBE with kMayMake: the number of the store whose
//            keys it is for
//   seq      of the operation in its session; a reply has that of its operation
//   encoding, param   PUSH: how the body is written down, and a number of that encoding's own
//   body     INIT, PUSH, RESTORE; VALUE; CONTROL; PULL of a key by rows: the ids, of 64 bits each, that
//            are asked for, ascending by Mix; the VALUE has the rows in this order
//   need     PULL, PUSH: an operation of the session that must be done first, or 0; with kOfBirth,
//            which PUSH, PULL, ABSTAIN and DELETE may have, the birth of the key that is meant; with
//            kOfCut the version that was kept; TRACED the server's clock in ns; PUSH with kBarrierKey
//            the number of the barrier's store
//   extra    the payload below that belongs to the type
struct Message {
  Type type{};
  uint8_t flags = 0;
  DType dtype{};
  Encoding encoding = Encoding::kDense;
  uint32_t chunk = 0;
  KeyId key;
  uint64_t number = 0;
  uint64_t seq = 0;
  uint64_t need = 0;
  uint32_t param = 0;
  std::string extra;
  Bytes body;

  ChunkId chunk_id() const { return {key, chunk}; }
};

Message Reply(const Message& request, Type type, uint64_t number = 0);
Message ErrorReply(uint64_t seq, Code code, std::string text);
// The error that an ERROR message carries.
Error ErrorOf(const Message& message);

// ---- payloads: `extra` of the type in the comment -----------------------------------------------

enum class Role : uint8_t { kWorker = 0, kObserver = 1, kServer = 2 };  // wire value

struct Hello {  // HELLO
  std::string job;
  Role role = Role::kWorker;
  Rank rank = kNoRank;       // of a worker; index of a server; to the head kNoRank: any free one
  uint64_t incarnation = 0;  // 0 to the head: a new life
  uint64_t known = 0;   // to a shard: its incarnation as the client knows it, or 0; to the head: a
                        // number of the process's own, so that a repeated HELLO is no second life
  std::string address;  // of a server, to the head: where clients find it; may be empty
  Protocol protocol;    // of the sender; a HELLO of version 1 ends before it
};

struct Welcome {  // WELCOME
  uint64_t server_incarnation = 0;
  bool resumed = false;
  uint64_t credit_bytes = 0;
  Rank rank = kNoRank;       // from the head
  uint64_t incarnation = 0;  // from the head
  bool rejoined = false;     // from the head: the rank has lived before
  Protocol protocol;         // of the sender
};

// How servers keep the values of a key.
enum class Layout : uint8_t {  // wire value: never renumber
  kDense = 0,                  // chunks of equal length, dealt to all servers
  kWhole = 1,                  // one chunk, for updates that need all of a value
  kRows = 2,                   // rows that are made when they are first written, in buckets
};
const char* Name(Layout layout) noexcept;

// Optimizer and hyperparameters; no program means assignment.
struct UpdateSpec {     // CONTROL, and in a KeyMeta
  std::string program;  // text form
  bool multi_precision = false;
  std::vector<double> params;
  bool fresh = false;  // begins without the state of an earlier one, even of the same program
  bool lazy = true;    // of rows, only those that a push brings
  bool operator==(const UpdateSpec&) const = default;
};

// What a key is; fixed at INIT.
struct KeyMeta {  // INIT, EXISTS, META
  static constexpr uint32_t kChunkElementsDefault = 262'144;
  static constexpr uint32_t kStalenessMax = 1024;
  static constexpr uint64_t kChunksMax = uint64_t{1} << 22;  // a place is kept for each
  static constexpr uint32_t kBucketsMax = 1024 * 16;
  enum class Mode : uint8_t { kSync = 0, kAsync = 1 };  // wire value

  std::string name;    // canonical
  uint64_t birth = 0;  // differs each time that a key of this name is made
  DType dtype{};
  Shape shape;
  uint32_t chunk_elements = kChunkElementsDefault;  // a multiple of 1024
  Mode mode = Mode::kSync;
  uint32_t staleness = 0;      // k: rounds that may be open beyond one
  bool deterministic = false;  // sums in the order of ranks
  Layout layout = Layout::kDense;
  uint64_t row_count = 0;      // kRows, of which `shape` is one row's
  uint32_t buckets = 0;        // kRows: its chunks
  RowInitializer initializer;  // kRows
  RowPolicy policy;            // kRows
  // Of this key alone, whatever its store has; no CONTROL changes it.
  std::optional<UpdateSpec> own;

  bool by_rows() const { return layout == Layout::kRows; }
  // Of the whole value; by rows of one row, of which `shape` is the shape.
  uint64_t elements() const { return static_cast<uint64_t>(shape.size()); }
  size_t row_bytes() const { return elements() * ItemSize(dtype); }  // by rows
  uint32_t chunk_count() const;
  // Not by rows.
  uint64_t elements_of(uint32_t chunk) const;
  size_t bytes_of(uint32_t chunk) const { return elements_of(chunk) * ItemSize(dtype); }
  bool exact_reads() const { return mode == Mode::kSync && staleness == 0; }
  bool operator==(const KeyMeta&) const = default;
};

// Where a chunk stands, and who is awaited there.
struct ChunkStatus {  // STATUS_REPLY, and OK of a CANCEL
  uint64_t version = 0;
  uint64_t last_arrived = 0;  // last open round that the asking rank has arrived in, or `version`
  std::vector<Rank> missing;  // members that have not arrived in round version + 1
  std::optional<TableStats> table;  // of a bucket
  uint64_t base = 0;  // what users count rounds from: the round of what was put back; modulo 2^64
  // The step of the asking rank's last push answers a STATUS with kInStep; a bucket has none.
  std::optional<PushStep> step = {};
};

// The membership, whole.
struct Epoch {                                                          // EPOCH
  enum class Policy : uint8_t { kFail = 0, kWait = 1, kContinue = 2 };  // wire value
  // Wire values.  A dead member may have a next life; a lost one is dead and has none.
  enum class State : uint8_t { kAwaited = 0, kAlive = 1, kDead = 2, kLeft = 3, kLost = 4 };
  // What the head knows of a worker or server: of its newest life, which may be over or not begun.
  struct Seat {
    uint64_t incarnation = 0;  // 0: never joined
    State state = State::kAwaited;
    std::string address;  // of a server: where it listens
    bool IsDead() const { return state == State::kDead || state == State::kLost; }
    bool IsOver() const { return IsDead() || state == State::kLeft; }
    bool operator==(const Seat&) const = default;
  };
  // The last CONTROL that a life of a rank has committed.
  struct Commit {
    Rank rank = kNoRank;
    uint64_t incarnation = 0;
    uint64_t generation = 0;
    bool operator==(const Commit&) const = default;
  };

  uint64_t number = 0;
  Policy policy = Policy::kFail;
  std::vector<Seat> workers;
  std::vector<Seat> servers;
  std::vector<Commit> commits;
  Placement placement;

  // Whether rounds need this rank: under `fail` and `wait` always, under `continue` while it lives.
  bool IsMember(Rank rank) const;
  // Of a worker; one that the job does not have has never joined.
  State StateOf(Rank rank) const;
  // Returns true if rounds do not wait for this rank any more, so that waiting for it is an error.
  bool IsGone(Rank rank) const;
  // Returns true if this rank has left, or is dead and has no next life.
  bool IsLast(Rank rank) const;
  uint64_t CommittedBy(Rank rank, uint64_t incarnation) const;
  bool operator==(const Epoch&) const = default;
};

const char* Name(Epoch::State state) noexcept;

// Some of the rows that a cut bucket has, or of its candidates, ascending by the mix of their ids.
struct RowRange {  // PULL with kOfCut of a key by rows, but for its scalars
  uint64_t first = 0;
  uint64_t count = 0;
};

// What a chunk keeps beside its value.  Its parts have numbers: the value, the master (a copy of a
// 16-bit value in its compute type), the state arrays of the program (in the compute type), and its
// state scalars (one f64 each).  Of a bucket, which has rows, the ids come before the others, and what is
// noted of each row (two u64: version, count); behind them the ids that are candidates for rows, and
// what is noted of these.
struct ChunkState {  // VALUE of a kCut; RESTORE, whose body is its parts one behind the other
  static constexpr uint64_t kValue = 0, kMaster = 1, kStates = 2;  // numbers of parts
  static constexpr uint64_t kIds = UINT64_MAX, kNotes = UINT64_MAX - 1;
  static constexpr uint64_t kCandidates = UINT64_MAX - 2, kCandidateNotes = UINT64_MAX - 3;
  static constexpr uint8_t kStatesMax = 32;
  static constexpr uint64_t kRowsMax = uint64_t{1} << 36;  // of a bucket

  uint64_t version = 0;
  uint64_t updates = 0;  // by this program
  bool has_value = true;
  bool has_master = false;
  uint8_t arrays = 0;
  uint8_t scalars = 0;
  UpdateSpec spec;
  bool by_rows = false;
  uint64_t rows = 0;         // by rows
  uint64_t row_version = 0;  // that notes are counted by
  bool has_notes = false;
  uint64_t candidates = 0;

  bool HasPart(uint64_t part) const;
  bool IsScalar(uint64_t part) const;
  // Bytes of a part of a chunk; 0 where there is no such part.
  //   elements  of the chunk; by rows of one row
  size_t PartBytes(uint64_t part, DType dtype, size_t elements) const;
  // Of a part by rows: how many rows, or candidates, it is of, and the bytes of one.
  uint64_t RowsOf(uint64_t part) const;
  static size_t RowBytes(uint64_t part, DType dtype, size_t elements);
  size_t Bytes(DType dtype, size_t elements) const;  // of all parts
  bool operator==(const ChunkState&) const = default;
};

// CONTROL says per key from which round on it counts:
//
//   a key of the store that is         without kOnlyListed    with kOnlyListed
//   listed, synchronous                from_round             from_round
//   there, not listed, synchronous     round 1                not at all
//   there, asynchronous                at once                at once
//   made later                         its beginning          its beginning
//
// A later life sends kOnlyListed: it lists the keys whose rounds it has joined, and announces the
// same again for one that it joins later, before its first push of that key.
struct ControlRounds {  // body of CONTROL
  struct Item {
    KeyId key;
    uint64_t from_round = 0;
  };
  static_assert(sizeof(Item) == 24);
};

std::string Encode(const Hello& value);
std::string Encode(const Welcome& value);
std::string Encode(const KeyMeta& value);
std::string Encode(const UpdateSpec& value);
std::string Encode(const ChunkStatus& value);
std::string Encode(const ChunkState& value);
std::string Encode(const RowRange& value);
std::string Encode(const Epoch& value);
std::string EncodeScalars(const std::vector<double>& scalars);
std::string Encode(const PushStep& value);
std::string EncodeFailure(const Error& failure);  // PUSH with kFails; the text may be cut

//   throws  kInvalidArgument  the bytes are not such a payload, whole and within its bounds
Hello DecodeHello(std::string_view bytes);
Welcome DecodeWelcome(std::string_view bytes);
KeyMeta DecodeKeyMeta(std::string_view bytes);
UpdateSpec DecodeUpdateSpec(std::string_view bytes);
ChunkStatus DecodeChunkStatus(std::string_view bytes);
ChunkState DecodeChunkState(std::string_view bytes);
RowRange DecodeRowRange(std::string_view bytes);
Epoch DecodeEpoch(uint64_t number, std::string_view bytes);
std::vector<double> DecodeScalars(std::string_view bytes);
// The step at the beginning of the `extra` of a PUSH with kInStep; `bytes` become those behind it.
PushStep TakeStep(std::string_view* bytes);
Error DecodeFailure(std::string_view bytes);

}  // namespace tkv
