// A KVStore maps keys to tensors that several devices or machines share.
//
// Thread-safe.  Operations on one key take effect in the order in which one thread issued them. The
// whole batch of one call is checked before any of it changes anything, and a call that throws has
// changed nothing.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tkv/api.h"
#include "tkv/compression.h"
#include "tkv/error.h"
#include "tkv/key.h"
#include "tkv/ndarray.h"
#include "tkv/optimizer.h"
#include "tkv/options.h"
#include "tkv/push_step.h"
#include "tkv/rows.h"
#include "tkv/stats.h"
#include "tkv/status.h"

namespace tkv {

// An operation under way.  Its outputs are undefined until it is done.
class TKV_API PendingCall : public Pending {
 public:
  // Calls `ended` once it has ended, well or not, and at once where it has: on any thread and under
  // locks of the store, so that it may do no more than hand on.
  virtual void OnEnd(std::function<void()> ended) = 0;
  // The caller gives it up: it ends with kCancelled, its outputs are not written to from here on,
  // and values that it has pushed are read from copies.  False where it had ended before.
  virtual bool Cancel() = 0;
  // The error that it has ended with.  Looking here is not being told: Wait is.
  virtual std::optional<Error> failure() const = 0;
  // The path of the snapshot that a save has written; empty before its end, on a rank that does not
  // write, and of every other operation.
  virtual std::string saved_path() const { return {}; }
};
using Ticket = std::shared_ptr<PendingCall>;

struct InitItem {
  KeyView key;
  const NDArray* value;
  std::string_view mode = {};  // "sync", "async"; empty: that of the store
};

struct PushItem {
  KeyView key;
  std::span<const NDArray* const> values;  // at least one, each with the key's shape and dtype
  // Messages queued for a server are sent in order of priority, highest first.  Stores of one
  // process ignore it.
  int priority = 0;
  PushStep step = {};  // told by FormerStep; stores of one process ignore it
};

struct PullItem {
  KeyView key;
  std::span<const NDArray* const> outs;  // at least one, each with the key's shape
  int priority = 0;                      // as of a PushItem
};

// A key whose rows are kept each by itself, or one with a value beside such keys.
struct RowsInitItem {
  KeyView key;
  Shape row_shape;  // of one row
  DType dtype = DType::kF32;
  uint64_t row_count = kRowsMax;  // ids are below it
  RowInitializer initializer = {};
  const Rows* rows = nullptr;  // that are there from the beginning; null: none
  std::string_view mode = {};  // as of an InitItem
  RowPolicy policy = {};
  // Of this key alone, from its first push to its end, whatever the store has; null: the store's.
  std::shared_ptr<const Optimizer> optimizer = {};
  // The key is one as Init makes it, with this value, and of the others only key and mode count; null: it
  // is kept by rows.
  const NDArray* value = nullptr;
};

// Which rows of a key are meant.
struct RowsFilter {
  uint64_t first = 0;  // ids
  uint64_t end = kRowsMax;
  // Only those that a later version than this one has brought; the key's policy has notes.
  std::optional<uint64_t> since = std::nullopt;
};

// Rows as they were at one version, ascending by id.
struct RowsExport {
  Rows rows;
  uint64_t version = 0;
};

struct RowsPushItem {
  KeyView key;
  std::span<const Rows* const> values;  // at least one
  int priority = 0;                     // as of a PushItem
};

// One reading of rows.  A key may stand in several of a call.
//   shape  ids: (n,) of int64, in any order, with repetitions; out: (n, ...), row i for ids[i]
struct RowsPullItem {
  KeyView key;
  const NDArray* ids;
  const NDArray* out;
  int priority = 0;
};

// Combines the sum of a push with the stored value by changing `stored` in place.  Runs on the
// thread that pushes, once per key, in the order in which keys first appear in the call; `sum` and
// `stored` are its own copies.  It may use the store, but not for a key of the call that it runs
// in.  What it throws reaches the caller of Push, and then no key of that call has changed.
using UpdateFunction =
    std::function<void(const KeyView& key, const NDArray& sum, const NDArray& stored)>;

// The dtype of the sums that an UpdateFunction gets.  Sums of float16 and bfloat16 are made in float32.
enum class SumType : uint8_t {
  kOfKey,  // that of the key; 16-bit sums are rounded once, so that large ones are infinite
  kWide,   // float32 for keys of float16 and bfloat16, not rounded; that of the key for all others
};

// Called once at the end of each call for whose keys an UpdateFunction was called, on the same thread: for
// `returned` of them that function returned.  Where `kept` is false the values of all are what they were
// before the call, and so should be what the function keeps of its own.  Throws nothing.
using UpdateEnd = std::function<void(size_t returned, bool kept)>;

class TKV_API KVStore {
 public:
  struct KeyInfo {
    Shape shape;  // of one row where the key is kept by rows
    DType dtype;
    Context context;
    bool by_rows = false;
    uint64_t row_count = 0;  // by rows: ids are below it
  };

  // Makes a store of one process ("local", "device") or of several ("dist_sync", "dist_async", see
  // docs/launching.md), by these names or the others that docs/api.md lists, in any case.
  //   throws  kInvalidArgument  an unknown type, listing those there are
  //           kUnimplemented    a type that this build does not have
  static std::unique_ptr<KVStore> Create(std::string_view type = "local",
                                         const StoreOptions& options = {});

  // Opens a store of a running job from outside, to look and to read: an observer has no rank, no round
  // waits for it, and it comes and goes as it likes.  Pulls give the newest round that is whole, Round
  // says which one that was, Keys are those of the store with that number, in the order of create().
  // Everything that would change the job throws kFailedPrecondition.
  //   url     as KVStore::url has it, or empty: as FindJob; its token is that of options.token_file,
  //           options.token or TKV_TOKEN_FILE
  //   blocks  until the head is there, at most the server patience
  //   throws  kInvalidArgument (no such URL, an option that is a worker's), kDeadlineExceeded,
  //           kUnauthenticated (another token, no job of that name there), kFailedPrecondition (another
  //           version)
  static std::unique_ptr<KVStore> Connect(std::string_view url, const StoreOptions& options = {},
                                          uint32_t store = 0);

  virtual ~KVStore() = default;

  // Creates each key with a copy of its value.  Shape, dtype and context stay those of the value.
  //   throws  kAlreadyExists    a key is there, or stands twice in the call
  //           kInvalidArgument  integer and string keys in one store
  virtual void Init(std::span<const InitItem> items) = 0;

  // For each key: sums the values, from left to right, and hands the sum to the updater, or stores
  // it when there is none.  Values of a key that stands twice are summed as one list.
  //   blocks  while another thread uses one of the keys, at most the patience
  //   throws  kNotFound, kInvalidArgument, kDeadlineExceeded, kFailedPrecondition (the store is
  //           closed, was made before a fork, or its updater pushes a key of the same call), and
  //           what the updater throws
  virtual void Push(std::span<const PushItem> items) = 0;

  // Copies each key's value into its outs, converting between float dtypes.  Where two outs are one
  // memory the later key wins.
  //   blocks, throws  as Push
  virtual void Pull(std::span<const PullItem> items) = 0;

  // Push, then Pull, in one pass over memory where the arrays allow it.  An out may be one of the
  // values.
  virtual void PushPull(std::span<const PushItem> items, std::span<const PullItem> outs) = 0;

  // Init, then Pull of the same keys.
  //   throws  as Init and Pull, before any key is there
  virtual void Broadcast(std::span<const InitItem> items, std::span<const PullItem> outs) = 0;

  // The same, under way when it returns: a push is done when its round is complete, a pull when its
  // outs are written.  An error of the call itself is thrown, a later one by Wait; where nobody
  // waits, by the next call on that key and by Close.
  //   owns    keeps the arrays until it is done
  virtual Ticket PushAsync(std::span<const PushItem> items);
  virtual Ticket PullAsync(std::span<const PullItem> items);
  virtual Ticket PushPullAsync(std::span<const PushItem> items, std::span<const PullItem> outs);

  // Creates keys whose rows are kept each by itself: memory grows with the rows that are pushed.  All items
  // are checked before any key is created.
  //   throws  as Init, and kInvalidArgument (an id that is not below row_count, or stands twice)
  virtual void InitRows(std::span<const RowsInitItem> items);
  // For each key: sums the rows, each id by itself, and hands them to the updater, or stores them when
  // there is none.  Rows that are not there begin as the key's initializer has them.  A lazy optimizer
  // changes only the rows that are pushed.  A key made by Init takes rows, too: the others are zero in
  // its sum, but a lazy optimizer leaves them.
  // `whole` are values of all rows of other keys, pushed in the same call; `verb` begins the message of an
  // error.
  //   throws  as Push, and kOutOfRange (an id that the key does not have); nothing has changed
  virtual void PushRows(std::span<const RowsPushItem> items, std::span<const PushItem> whole = {},
                        std::string_view verb = "push_rows");
  // Copies rows of keys made by InitRows.
  //   throws  as Pull, and kOutOfRange, kInvalidArgument (a key that is not kept by rows)
  virtual void PullRows(std::span<const RowsPullItem> items, std::string_view verb = "pull_rows");
  virtual Ticket PushRowsAsync(std::span<const RowsPushItem> items,
                               std::span<const PushItem> whole = {},
                               std::string_view verb = "push_rows");
  virtual Ticket PullRowsAsync(std::span<const RowsPullItem> items,
                               std::string_view verb = "pull_rows");

  // Reads the rows of a key made by InitRows that are there, all at the version of this worker's last push,
  // while others go on.  Reads no other rows, and makes none.
  //   throws  as PullRows, kFailedPrecondition (a save or an export of the job is under way)
  virtual RowsExport ExportRows(const KeyView& key, const RowsFilter& filter = {});
  // Rows begin anew with these values: no updater is asked, what updates have kept beside them is gone, and
  // no policy keeps them out.  In a distributed store the lowest rank that lives calls it, and in
  // synchronous mode between two barriers.
  //   throws  as PushRows, and kInvalidArgument (an id stands twice); kFailedPrecondition (a round has begun,
  //           another rank)
  virtual void ImportRows(const KeyView& key, const Rows& rows);
  // What a key made by InitRows has, on all servers.
  virtual TableStats StatsOfTable(const KeyView& key);

  // Gives keys new values, as a script does that loads weights.  The optimizer's states, counts and
  // rounds stay.  In a distributed store every worker calls it with the same keys, between two steps,
  // and the values of the lowest rank that lives count.
  //   shape   values: each with its key's shape and dtype, on any device
  //   blocks  until every worker has called it, at most the patience
  //   throws  kNotFound, kInvalidArgument (another shape or dtype, a key twice), kUnimplemented (a key
  //           by rows, an older server), kFailedPrecondition (a round is open, a worker that has been
  //           started again while its job goes on)
  virtual void Assign(std::span<const InitItem> items) = 0;

  // Removes a key; a later Init makes it anew.  In a distributed store every worker calls it,
  // between two barriers.
  //   throws  kNotFound, kDeadlineExceeded, kFailedPrecondition
  virtual void Delete(const KeyView& key) = 0;

  // Replaces the updater; an empty function restores assignment.  State of an earlier optimizer is
  // forgotten.
  virtual void SetUpdater(UpdateFunction updater, UpdateEnd end = {},
                          SumType sums = SumType::kOfKey) = 0;
  // In a distributed store rank 0 defines the optimizer for all.  Another rank that sets one with
  // other hyperparameters, or while rank 0 has set none, makes its rounds fail (kInvalidArgument).
  virtual void SetOptimizer(std::shared_ptr<const Optimizer> optimizer) = 0;
  // From now on this worker's pushes of the keys whose names match the pattern (`*`, `?`, `[a-z]`, `[!a-z]`
  // as in docs/compression.md; of an integer key its digits) are compressed.  What the worker still owes a key goes with its next
  // push, whatever the compression is then.  The last call whose pattern matches a key counts for it.
  //   shape   keys of float32, float16 or bfloat16; a push of another one fails
  //   throws  kInvalidArgument  an unknown type, a number out of its range
  //           kFailedPrecondition  a store that sends nothing: "local"
  virtual void SetGradientCompression(const Compression& compression,
                                      const std::string& keys = "*") = 0;

  // ---- on disk
  struct SnapshotInfo {
    std::string path;  // of the snapshot itself; empty on ranks that do not read it
    std::vector<std::pair<Key, uint64_t>> rounds;  // of each key, as Round has them from now on
  };
  // Saves the values of all keys and what the optimizer keeps beside them, but nothing that a function
  // of SetUpdater keeps of its own, as a new snapshot in the folder `path`, which keeps the newest
  // two: safetensors files with an index, there whole or not at all.  A synchronous key is saved at the round of this worker's last push, an asynchronous one as
  // it is; the other workers go on.  In a job the lowest rank that lives writes, on its machine;
  // another one's call does nothing.
  //   returns  the path of the snapshot, PATH/000001 and so on; empty where nothing was to be done
  //   blocks   until all of it is on the disk
  //   throws   kResourceExhausted (the disk is full), kFailedPrecondition (no permission, another
  //            store is saving there), kUnavailable (what the disk says); what was there before is
  //            there
  virtual std::string Save(const std::string& path) = 0;
  // The same, written by a thread of its own: returns when every key is kept at its round.  The
  // ticket's `saved_path` is what Save would return.
  virtual Ticket SaveAsync(const std::string& path);
  // Puts values and states back from the newest snapshot in `path`, or from the snapshot that it
  // names.  The store has the same keys, shapes and dtypes, and where there are states the same
  // optimizer.  In a job every worker calls it, on whatever number of servers.  Round goes on from
  // where a synchronous key was saved.
  //   throws  kNotFound, kDataLoss (naming the file and the key), kInvalidArgument (other keys,
  //           shapes or dtypes), kFailedPrecondition (another optimizer, a newer format, a worker that
  //          has been started again while its job goes on); nothing
  //           has changed
  virtual SnapshotInfo Load(const std::string& path) = 0;
  // Makes the keys of a snapshot in a store that has none, with the optimizer whose states it has, and
  // loads it; as Load.
  //   throws  and kFailedPrecondition where the store has keys, kUnimplemented where the states are
  //           of several optimizers
  SnapshotInfo Restore(const std::string& path);
  // Whether Load would find a snapshot there.
  //   throws  kDataLoss, kFailedPrecondition
  static bool HasSnapshot(const std::string& path);
  // States alone, as one file.  Load takes no values from it, LoadStates takes states from snapshots
  // too.
  virtual void SaveStates(const std::string& file) = 0;
  virtual void LoadStates(const std::string& file) = 0;

  virtual std::string type() const = 0;
  virtual int rank() const = 0;
  virtual int num_workers() const = 0;
  virtual void Barrier() = 0;
  virtual Ticket BarrierAsync();
  // The number of this worker's last push of the key, though it still waits to leave; after a new life,
  // the one that it goes on from; after Load, counted on from the one at which the key was saved.
  virtual uint64_t Round(const KeyView& key) const = 0;
  // The step of the last push of the key that this worker made before it was started again; of no step
  // where it made none, or is in its first life.
  //   throws  kNotFound
  virtual PushStep FormerStep(const KeyView& key) const;
  // Whether this worker has lived before in this job.
  virtual bool rejoined() const { return false; }
  // Where others find the job, for Connect; empty where nobody else can.
  virtual std::string url() const { return {}; }

  virtual size_t size() const = 0;
  virtual bool Contains(const KeyView& key) const = 0;
  // `verb` begins the message of the error.
  virtual KeyInfo Describe(const KeyView& key, std::string_view verb = "describe") const = 0;
  virtual std::vector<Key> Keys() const = 0;  // in the order of Init
  // What updates a key of a distributed store on its servers now, with the hyperparameters of its last
  // update; null: pushes are assigned.
  //   blocks  for the server at most the server patience
  //   throws  kNotFound            no such key
  //           kFailedPrecondition  the store is closed, or is one of one process
  //           kUnimplemented       the server is older
  virtual std::shared_ptr<Optimizer> UpdateOf(const KeyView& key) const;

  // What the job is and does, as the head and the servers say now.  A server that does not answer has an
  // error there.
  //   blocks  for each server at most the server patience
  //   throws  kFailedPrecondition  the store is closed, or is one of one process
  virtual JobStatus Status() const;
  // What it has done and what it waits for, by now.
  //   throws  kFailedPrecondition  the store is closed
  virtual StoreStats Stats() const = 0;
  // How many processes of the job are dead, as far as the head has said; 0 in a store of one process.
  //   node    a sum of 1 (the head), 2 (all servers) and 4 (all workers); or one process by MXNet's
  //           number of it: 8 + 2 * rank of a server, 9 + 2 * rank of a worker
  //   throws  kInvalidArgument (no such number), kFailedPrecondition (the store is closed)
  int NumDeadNode(int node) const;

  // ---- a trace
  // From now on it is noted when each push, pull and update of a key begins and how long it takes: by
  // this process, and by the servers, for all workers.  The newest 262,144 spans of each are kept.
  // The stores of a process that belong to one job share their trace.
  //   throws  kUnavailable (a server is out of reach), kUnimplemented (a server of an older version)
  virtual void StartTrace() = 0;
  // Nothing more is noted until StartTrace.
  virtual void PauseTrace() = 0;
  struct TraceInfo {
    size_t spans = 0;
    uint64_t lost = 0;  // older ones that were not kept
  };
  // Ends the trace and writes it to a file in Chrome's trace event format, with the servers' clocks
  // as this process sees them; servers that cannot be reached are left out.
  //   throws  kFailedPrecondition (no trace has begun), and as Save; the trace is kept then
  virtual TraceInfo WriteTrace(const std::string& file) = 0;

  // Frees all values; every later call but Close throws kFailedPrecondition.
  //   blocks  until operations of other threads are done, at most the patience
  virtual void Close() = 0;
  // The same, of a worker whose program has failed: for the others it is dead, and has not left.
  virtual void CloseAfterFailure() { Close(); }

 protected:
  // Returns the ticket of a call that has ended, with the path of the snapshot that it has written.
  static Ticket DoneTicket(std::string saved_path = {});

 public:
  // Batches of one.
  void Init(const KeyView& key, const NDArray& value);
  void Push(const KeyView& key, const NDArray& value);
  void Push(const KeyView& key, std::span<const NDArray> values);
  void Pull(const KeyView& key, const NDArray& out);
  void Pull(const KeyView& key, std::span<const NDArray> outs);
  void PushPull(const KeyView& key, std::span<const NDArray> values, std::span<const NDArray> outs);
};

}  // namespace tkv
