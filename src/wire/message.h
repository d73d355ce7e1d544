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
inline constexpr size_t kFailureBytesMax = 1024;            // text of one failure
inline constexpr size_t kTracedBytesMax = size_t{1} << 20;  // spans of one TRACED
inline constexpr size_t kListedBytesMax = size_t{1} << 20;  // keys of one LISTED
inline constexpr size_t kProgramBytesMax = 64 << 10;        // text of one update program

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

// Returns the name of an encoding, such as "2bit", or its number if it has no name.
std::string NameOf(Encoding encoding);
// The largest part of a contribution that a server accepts.
inline constexpr size_t kPartBytesMax = size_t{256} << 20;

const char* Name(Type type) noexcept;
bool IsReply(Type type) noexcept;
// Returns true if a shard must execute an operation of this type exactly once.
bool IsMutating(Type type) noexcept;

// Bits of Message::flags.  A bit has a meaning only for the types that its comment names.
enum Flag : uint8_t {  // wire value: never renumber
  kNoBody = 1,         // PULL: waits for the version; the VALUE has no body
  kOverwrite = 1,      // INIT: replaces the initial value of an earlier grant
  kNoWait = 1,         // DESCRIBE: a missing key gives NotFound at once
  kWithRule = 2,       // DESCRIBE: `own` in the META is the update rule that the key has now
  kMayMake = 4,        // DESCRIBE: the worker has a value and creates the key if the reply is OK
  kBarrierKey = 1,     // PUSH: to an internal key of zero bytes, created by its first push
  kOnlyListed = 1,     // CONTROL: applies to no existing synchronous key that is not listed
  kHasScalars = 2,     // PUSH: `extra` holds hyperparameters
  kOfRule = 16,        // PUSH with kHasScalars: `extra` ends with the digest of the worker's rule
  kOfBirth = 4,        // PUSH, PULL, ABSTAIN, DELETE: `need` is the birth of the intended key
  kCut = 8,            // PULL with kNoBody: keeps the answered version, to be read in parts
  kOfCut = 16,         // PULL: reads a part of the version that a kCut of this session kept
  kRecord = 1,         // TRACE: starts recording for this session; without it, recording stops
  kForget = 2,         // TRACE: this session needs the recorded spans no more
  kFails = 8,          // PUSH with kBarrierKey: the round ends with the error in `extra`
  kUnlessDone = 64,    // PUSH with kFails: only if no push of the round has kDone
  kDone = 32,          // PUSH with kBarrierKey: this worker has completed the barrier's task
  kBegins = 16,        // PUSH with kBarrierKey: from here on the job has begun, as by other pushes
  kInStep = 128,       // PUSH, RESTORE: `extra` begins with a step; STATUS: asks for that of the
                       // last push
  kAnyway = 32,        // PULL with kNoBody: the VALUE is sent even if the round's update failed
  kMore = 1,           // RESTORE of a key by rows: adds to the rows that an earlier one restored
  kOnlyRows = 2,       // RESTORE of a key by rows: resets only the rows in the body
  kOnlyValue = 4,      // RESTORE of a dense key: only the value; states, counts and rounds stay
};

// A message is one operation or one reply.  The type decides the meaning of the fields:
//   number   PUSH, RESTORE: round
//            PULL, VALUE, ACCEPTED: version;  PULL with kOfCut: number of a part (ChunkState)
//            INIT: number of its grant, or 0 from rank 0, which needs none;  OK of a DESCRIBE: the
//            number of the grant
//            ABSTAIN: last round;  CANCEL: seq of the operation to cancel
//            CONTROL, COMMIT, WITHDRAW: generation;  EPOCH: epoch
//            WELCOME of the head: the silence in ns after which it declares a process dead, or 0
//            GOODBYE: 1 from a worker that has failed, else 0;  ERROR: code
//            TRACE: the first span to return;  TRACED: the span after the returned ones
//            LISTED: 1 if there are more keys
//   key      LIST: the last key that the asker already has; {}: none
//   chunk    index within the key
//            CONTROL, CLOSE, RELEASE, DESCRIBE with kMayMake: number of the store
//   seq      number of the operation in its session; a reply repeats the seq of its operation
//   encoding, param   PUSH: encoding of the body, and a number that this encoding defines
//   body     INIT, PUSH, RESTORE, VALUE, CONTROL
//            PULL of a key by rows: the wanted ids, of 64 bits each, ascending by Mix; the VALUE
//            has the rows in this order
//   need     PULL, PUSH: an operation of the session that must be done first, or 0
//            PUSH, PULL, ABSTAIN, DELETE with kOfBirth: birth of the intended key
//            PULL with kOfCut: the version that was kept
//            TRACED: the server's clock in ns
//            PUSH with kBarrierKey: number of the barrier's store
//   extra    the payload of the type (below)
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

// Returns a reply without payload and body: key, chunk, dtype and seq are those of the request.
Message Reply(const Message& request, Type type, uint64_t number = 0);
Message ErrorReply(uint64_t seq, Code code, std::string text);
// The end of the error's text for a PULL with kCut while a server keeps versions for another
// worker.  The saving worker recognises the error by it, so every version of a server has to send
// it.
inline constexpr const char* kIsSaving = " is saving";
// Returns the error that an ERROR message carries.  An unknown code becomes kInternal.
Error ErrorOf(const Message& message);

// ---- payloads: `extra` of the type in the comment -----------------------------------------------

enum class Role : uint8_t { kWorker = 0, kObserver = 1, kServer = 2 };  // wire value

struct Hello {  // HELLO
  std::string job;
  Role role = Role::kWorker;
  Rank rank = kNoRank;       // of a worker, or index of a server; kNoRank to the head: any free one
  uint64_t incarnation = 0;  // 0 to the head: a new incarnation
  uint64_t known = 0;   // to a shard: its incarnation as the client knows it, or 0; to the head: a
                        // number of this process, so that a repeated HELLO starts no second
                        // incarnation
  std::string address;  // from a server to the head: where clients connect; may be empty
  Protocol protocol;    // the sender's; absent in a HELLO of version 1
};

struct Welcome {                    // WELCOME
  uint64_t server_incarnation = 0;  // from a server
  bool resumed = false;             // the receiver had this session, or this incarnation, already
  uint64_t credit_bytes = 0;        // from a server: for the bodies of unaccepted messages
  Rank rank = kNoRank;              // from the head
  uint64_t incarnation = 0;         // from the head
  // From the head: the rank had an earlier incarnation.  From a server with kBegunFeature: it has
  // accepted a push of a key.
  bool rejoined = false;
  Protocol protocol;  // the sender's
};

// The way in which servers store the values of a key.
enum class Layout : uint8_t {  // wire value: never renumber
  kDense = 0,                  // chunks of equal length, spread over all servers
  kWhole = 1,                  // one chunk, for updates that need the whole value
  kRows = 2,                   // rows, created on their first write, in buckets
};
const char* Name(Layout layout) noexcept;

// The optimizer of a store or key, with its hyperparameters.  No program means assignment.
struct UpdateSpec {     // CONTROL, and in a KeyMeta
  std::string program;  // text form
  bool multi_precision = false;
  std::vector<double> params;  // the hyperparameters, in the order of the program's declarations
  bool fresh = false;  // drops the state of the earlier rule, even if the program is the same
  bool lazy = true;    // updates only the elements or rows that the pushes name
  bool operator==(const UpdateSpec&) const = default;
  // Returns a number that two rules share only if they differ in nothing but their hyperparameters
  // and `fresh`.  Never returns 0.
  uint64_t Digest() const;
};

// The description of a key.  INIT fixes it.
struct KeyMeta {  // INIT, EXISTS, META
  static constexpr uint32_t kChunkElementsDefault = 262'144;
  static constexpr uint32_t kStalenessMax = 1024;
  static constexpr uint64_t kChunksMax = uint64_t{1} << 22;  // each takes an entry of a table
  static constexpr uint32_t kBucketsMax = 1024 * 16;
  enum class Mode : uint8_t { kSync = 0, kAsync = 1 };  // wire value

  std::string name;    // canonical
  uint64_t birth = 0;  // differs each time a key of this name is created
  DType dtype{};
  Shape shape;
  uint32_t chunk_elements = kChunkElementsDefault;  // a multiple of 1024
  Mode mode = Mode::kSync;
  uint32_t staleness = 0;      // k: open rounds allowed beyond the first
  bool deterministic = false;  // sums pushes in the order of ranks
  Layout layout = Layout::kDense;
  uint64_t row_count = 0;      // kRows: `shape` is the shape of one row
  uint32_t buckets = 0;        // kRows: number of chunks
  RowInitializer initializer;  // kRows
  RowPolicy policy;            // kRows
  // The key's own optimizer, which replaces the store's.  No CONTROL changes it.
  std::optional<UpdateSpec> own;

  bool by_rows() const { return layout == Layout::kRows; }
  // Returns the elements of the whole value, or of one row if the key is kept by rows.
  uint64_t elements() const { return static_cast<uint64_t>(shape.size()); }
  size_t row_bytes() const { return elements() * ItemSize(dtype); }  // by rows
  uint32_t chunk_count() const;
  // Returns the elements of a chunk; 0 if the key is kept by rows.
  uint64_t elements_of(uint32_t chunk) const;
  size_t bytes_of(uint32_t chunk) const { return elements_of(chunk) * ItemSize(dtype); }
  // Returns true if a pull returns the round of the worker's last push, and no other one.
  bool exact_reads() const { return mode == Mode::kSync && staleness == 0; }
  bool operator==(const KeyMeta&) const = default;
};

// The progress of a chunk: its version, and the members whose pushes its next round lacks.
struct ChunkStatus {  // STATUS_REPLY, and OK of a CANCEL
  uint64_t version = 0;
  // The asking rank has pushed this round and all before it, or abstains from them.  At least the
  // last complete round.  An observer gets `version`.
  uint64_t last_arrived = 0;
  std::vector<Rank> missing;        // members whose push of round version + 1 is missing
  std::optional<TableStats> table;  // only a bucket's chunk has one
  uint64_t base = 0;  // added to `version` to get the user's round, after a RESTORE; modulo 2^64
  // The step of the asking rank's last push, in the reply to a STATUS with kInStep.  A bucket has
  // none.
  std::optional<PushStep> step = {};
};

// The complete membership of a job at one membership epoch.
struct Epoch {  // EPOCH
  // While a worker is dead, rounds without its push fail, wait for its next incarnation, or
  // complete without it.
  enum class Policy : uint8_t { kFail = 0, kWait = 1, kContinue = 2 };  // wire value
  // Wire values.  A dead member may get a next incarnation; a lost one is dead and gets none.
  enum class State : uint8_t { kAwaited = 0, kAlive = 1, kDead = 2, kLeft = 3, kLost = 4 };
  // The newest incarnation of one worker or server.  This incarnation may have ended, or not yet
  // begun.
  struct Seat {
    uint64_t incarnation = 0;  // 0: never joined
    State state = State::kAwaited;
    std::string address;  // a server's listening address
    bool IsDead() const { return state == State::kDead || state == State::kLost; }
    bool IsOver() const { return IsDead() || state == State::kLeft; }
    bool operator==(const Seat&) const = default;
  };
  // The last CONTROL that one incarnation of a rank has committed.
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

  // Returns true if rounds need this rank: under `fail` and `wait` always, under `continue` while
  // the rank is alive or awaited.
  bool IsMember(Rank rank) const;
  // Returns the state of a worker.  A rank outside of the job counts as awaited (never joined).
  State StateOf(Rank rank) const;
  // Returns true if a round that lacks a push of this rank fails instead of waiting: the rank
  // IsLast, or it is dead and the policy is not kWait.
  bool IsGone(Rank rank) const;
  // Returns true if this rank's incarnation was its last one: it has left, or is lost.
  bool IsLast(Rank rank) const;
  // Returns the last committed generation of an incarnation, or 0.
  uint64_t CommittedBy(Rank rank, uint64_t incarnation) const;
  bool operator==(const Epoch&) const = default;
};

const char* Name(Epoch::State state) noexcept;

// A range of the rows, or of the candidates, of a cut bucket, ascending by the mix of their ids.
struct RowRange {  // PULL with kOfCut of a key by rows, except for scalars
  uint64_t first = 0;
  uint64_t count = 0;
};

// The description of a chunk's value and optimizer state, which consist of numbered parts:
//   - the value
//   - the master, a copy of a 16-bit value in its compute type
//   - the state arrays of the program, in the compute type
//   - the state scalars, one f64 each
//
// A bucket has four more parts.  In a body, the ids of its rows and their notes (two u64: version,
// count) precede the parts above.  The ids of candidates for rows and their notes follow them.
struct ChunkState {  // VALUE of a kCut; RESTORE, whose body is the parts in this order
  static constexpr uint64_t kValue = 0, kMaster = 1, kStates = 2;  // numbers of parts
  static constexpr uint64_t kIds = UINT64_MAX, kNotes = UINT64_MAX - 1;
  static constexpr uint64_t kCandidates = UINT64_MAX - 2, kCandidateNotes = UINT64_MAX - 3;
  static constexpr uint8_t kStatesMax = 32;
  static constexpr uint64_t kRowsMax = uint64_t{1} << 36;  // in one bucket

  uint64_t version = 0;
  uint64_t updates = 0;   // number of updates by this program
  bool has_value = true;  // false: of a RESTORE of the optimizer's state alone
  bool has_master = false;
  uint8_t arrays = 0;
  uint8_t scalars = 0;
  UpdateSpec spec;
  bool by_rows = false;
  uint64_t rows = 0;         // by rows
  uint64_t row_version = 0;  // the table's version, to which the versions in notes refer
  bool has_notes = false;
  uint64_t candidates = 0;

  bool HasPart(uint64_t part) const;
  bool IsScalar(uint64_t part) const;
  // Returns the bytes of a part, or 0 if there is no such part.
  //   elements  number of elements of the chunk, or of one row if the key is kept by rows
  size_t PartBytes(uint64_t part, DType dtype, size_t elements) const;
  // Returns the number of rows or candidates in a part of a bucket.
  uint64_t RowsOf(uint64_t part) const;
  // Returns the bytes of one row or candidate in a part of a bucket.
  static size_t RowBytes(uint64_t part, DType dtype, size_t elements);
  size_t Bytes(DType dtype, size_t elements) const;  // sum over all parts
  bool operator==(const ChunkState&) const = default;
};

// The round from which a CONTROL applies to a key depends on the key and on kOnlyListed:
//
//   key of the store                    without kOnlyListed    with kOnlyListed
//   listed, synchronous                 from_round             from_round
//   existing, not listed, synchronous   its next round         never
//   existing, asynchronous              at once                at once
//   created later                       its first round        its first round
//
// A later incarnation sends kOnlyListed and lists the keys whose rounds it has joined.  If it joins
// a key later, it sends the same rule again for this key, before its first push of the key.
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
std::string EncodeRuleDigest(uint64_t digest);
std::string Encode(const PushStep& value);
std::string EncodeFailure(const Error& failure);  // PUSH with kFails; a long text is cut

//   throws  kInvalidArgument  the bytes are not one complete payload within its bounds
Hello DecodeHello(std::string_view bytes);
Welcome DecodeWelcome(std::string_view bytes);
KeyMeta DecodeKeyMeta(std::string_view bytes);
UpdateSpec DecodeUpdateSpec(std::string_view bytes);
ChunkStatus DecodeChunkStatus(std::string_view bytes);
ChunkState DecodeChunkState(std::string_view bytes);
RowRange DecodeRowRange(std::string_view bytes);
Epoch DecodeEpoch(uint64_t number, std::string_view bytes);
std::vector<double> DecodeScalars(std::string_view bytes);
// Removes the digest from the end of `bytes` (`extra` of a PUSH with kOfRule) and returns it.
uint64_t TakeRuleDigest(std::string_view* bytes);
// Removes the step from the beginning of `bytes` (`extra` of a PUSH with kInStep) and returns it.
PushStep TakeStep(std::string_view* bytes);
Error DecodeFailure(std::string_view bytes);

}  // namespace tkv
