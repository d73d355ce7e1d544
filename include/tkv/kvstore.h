// A KVStore maps keys to tensors that several devices or machines share.
//
// Thread-safe.  Operations of one thread on one key take effect in the order in which the thread
// issued them.  A call checks its whole batch before it changes anything; a call that throws has
// changed nothing.
//
// A store belongs to one process, or is distributed: several workers share its keys, and servers
// run the updater.  The nth push of each worker for a key is its part of the key's round n.

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

// An operation that may still run after its call has returned.  Its outputs are undefined until it
// is done.
class TKV_API PendingCall : public Pending {
 public:
  // Calls `ended` when the operation has succeeded or failed; at once if it already has.  Any
  // thread may run it, with locks of the store held, so it must only notify another thread.
  virtual void OnEnd(std::function<void()> ended) = 0;
  // Cancels the operation: it ends with kCancelled, its outputs are no longer written, and its
  // pushed values are read from copies.  Returns false if it had already ended.
  virtual bool Cancel() = 0;
  // Returns the error of an operation that failed.  This does not count as reporting the error to
  // the user; only Wait does.
  virtual std::optional<Error> failure() const = 0;
  // Returns the path of the snapshot that a save has written.  Empty before the save has ended, on
  // a rank that does not write, and for all other operations.
  virtual std::string saved_path() const { return {}; }
};
using Ticket = std::shared_ptr<PendingCall>;

struct InitItem {
  KeyView key;
  const NDArray* value;
  std::string_view mode = {};  // "sync" or "async"; empty: the store's mode
};

struct PushItem {
  KeyView key;
  std::span<const NDArray* const> values;  // at least one, each with the key's shape and dtype
  // Priority of the messages that wait for a server: the highest is sent first.  Stores of one
  // process ignore it.
  int priority = 0;
  PushStep step = {};  // training step, see FormerStep; stores of one process ignore it
};

struct PullItem {
  KeyView key;
  std::span<const NDArray* const> outs;  // at least one, each with the key's shape
  int priority = 0;                      // as of a PushItem
};

// A new key: one that is stored row by row, or, if `value` is not null, a dense one.  Both kinds
// are items of InitRows, so that one call can create keys of both.
struct RowsInitItem {
  KeyView key;
  Shape row_shape;  // of one row
  DType dtype = DType::kF32;
  uint64_t row_count = kRowsMax;  // ids are below it
  RowInitializer initializer = {};
  const Rows* rows = nullptr;  // initial rows; null: none
  std::string_view mode = {};  // as of an InitItem
  RowPolicy policy = {};
  // Updates this key from its first push until it is deleted; null: the store's optimizer does.
  std::shared_ptr<const Optimizer> optimizer = {};
  // If not null, the key is a dense one as Init makes it, with this value, and only `key` and
  // `mode` count beside it.
  const NDArray* value = nullptr;
};

// Selects rows of a key.
struct RowsFilter {
  uint64_t first = 0;  // ids
  uint64_t end = kRowsMax;
  // Only rows that were pushed after this version; the key's policy needs `has_notes`.
  std::optional<uint64_t> since = std::nullopt;
};

// The rows of a key at one version, in ascending order of ids.
struct RowsExport {
  Rows rows;
  uint64_t version = 0;
};

struct RowsPushItem {
  KeyView key;
  std::span<const Rows* const> values;  // at least one
  int priority = 0;                     // as of a PushItem
};

// A read of some rows of a key.  A call may contain several for the same key.
//   shape  ids: (n,) of int64, in any order, with repetitions; out: (n, ...), row i for ids[i]
struct RowsPullItem {
  KeyView key;
  const NDArray* ids;
  const NDArray* out;
  int priority = 0;
};

// Combines the sum of a push with the stored value by changing `stored` in place.  The thread that
// pushes calls it once per key, in the order in which keys first appear in the call.  `sum` and
// `stored` are copies that only this function uses.  The function may use the store, but not keys
// of the current call.  An exception from it reaches the caller of Push; then no key of the call
// has changed.
using UpdateFunction =
    std::function<void(const KeyView& key, const NDArray& sum, const NDArray& stored)>;

// The dtype of the sums that an UpdateFunction receives.  Sums of float16 and bfloat16 values are
// computed in float32.
enum class SumType : uint8_t {
  kOfKey,  // the key's; 16-bit sums are rounded once, so that large ones become infinite
  kWide,   // float32 for keys of float16 and bfloat16, not rounded; else the key's
};

// Called once at the end of each call that ran an UpdateFunction, on the same thread.  `returned`
// is the number of keys for which the function returned.  If `kept` is false, all values were
// restored to those before the call; the function should then undo changes of its own state, too.
// Must not throw.
using UpdateEnd = std::function<void(size_t returned, bool kept)>;

// Returns true if all rows of a table fit into one array, which has at most 4 GiB and 2^31 rows.
// Push and Pull of such a table also take whole arrays; PushRows and PullRows take parts of any.
TKV_API bool FitOneArray(uint64_t rows, size_t row_bytes);

class TKV_API KVStore {
 public:
  struct KeyInfo {
    Shape shape;  // of one row if the key is stored by rows
    DType dtype;
    Context context;
    bool by_rows = false;
    uint64_t row_count = 0;  // by rows: ids are below it
  };

  // Creates a store of one process ("local", "device") or of several ("dist_sync", "dist_async",
  // see docs/launching.md).  docs/api.md lists the other names; upper and lower case are equal.
  //   throws  kInvalidArgument  an unknown type, listing the known ones
  //           kUnimplemented    a type that this build does not have
  static std::unique_ptr<KVStore> Create(std::string_view type = "local",
                                         const StoreOptions& options = {});

  // Opens a store of a running job as an observer, which can only read.  An observer has no rank
  // and no round waits for it; it may join and leave at any time.  Pull returns the newest complete
  // round, and Round the number of that round.  `store` selects a store of the job, in the order in
  // which its workers called create().  Calls that would change the job throw kFailedPrecondition.
  //   url     as KVStore::url returns it, or a name or nothing: as FindJob.  The token is that of
  //           options.token_file, options.token or TKV_TOKEN_FILE
  //   blocks  until the head answers, at most the server patience
  //   throws  kInvalidArgument (no such URL, an option that only a worker has), kDeadlineExceeded,
  //           kUnauthenticated (another token, no job of that name there), kFailedPrecondition
  //           (another version)
  static std::unique_ptr<KVStore> Connect(std::string_view url, const StoreOptions& options = {},
                                          uint32_t store = 0);

  virtual ~KVStore() = default;

  // Creates each key with a copy of its value.  The key keeps the shape, dtype and context of the
  // value.  In a distributed store every worker calls it, and rank 0's values are used.
  //   blocks  in a distributed store until rank 0 has created the key, at most the patience
  //   throws  kAlreadyExists    the key exists, or is twice in the call
  //           kInvalidArgument  integer and string keys in one store; a key of rank 0 with another
  //                             shape, dtype or mode
  //           kDeadlineExceeded, kUnavailable  rank 0 or a server did not come in time, or is dead
  virtual void Init(std::span<const InitItem> items) = 0;

  // For each key: sums the values from left to right and passes the sum to the updater.  If there
  // is no updater, the sum replaces the value.  If a key is twice in the call, its values form one
  // list.  A distributed store returns when the values have been sent or copied and may be changed.
  // If the push fails later, the next call on the key throws its error.
  //   blocks  while another thread uses one of the keys, at most the patience
  //   throws  kNotFound, kInvalidArgument, kDeadlineExceeded, kFailedPrecondition (the store is
  //           closed, was created before a fork, or its updater pushes a key of the same call), and
  //           exceptions of the updater
  virtual void Push(std::span<const PushItem> items) = 0;

  // Copies each key's value into its outs, converting between float dtypes.  If two outs are the
  // same memory, the later key wins.  In "dist_sync" the value has the round of this worker's last
  // push of the key, so that Pull waits for the other workers' pushes.
  //   blocks, throws  as Push
  virtual void Pull(std::span<const PullItem> items) = 0;

  // Pushes, then pulls, in one pass over memory if the arrays allow it.  An out may be one of the
  // values.
  virtual void PushPull(std::span<const PushItem> items, std::span<const PullItem> outs) = 0;

  // Creates keys, then pulls the same keys.
  //   throws  as Init and Pull, before any key is created; also kInvalidArgument if `outs` is empty
  virtual void Broadcast(std::span<const InitItem> items, std::span<const PullItem> outs) = 0;

  // The same operations, which may still run when the call returns.  A push is done when its round
  // is complete, and a pull when its outs are written.  The call throws errors of its arguments;
  // Wait throws later ones.  If nobody calls Wait, the next call on that key and Close throw them.
  //   owns    keeps the arrays until it is done
  virtual Ticket PushAsync(std::span<const PushItem> items);
  virtual Ticket PullAsync(std::span<const PullItem> items);
  virtual Ticket PushPullAsync(std::span<const PushItem> items, std::span<const PullItem> outs);

  // Creates keys that are stored row by row, so that memory grows only with the rows that are
  // pushed.  Checks all items before it creates any key.  `verb` begins the message of an error.
  //   throws  as Init, and kInvalidArgument (an id that is not below row_count, or is there twice)
  virtual void InitRows(std::span<const RowsInitItem> items,
                        std::string_view verb = "init_table") = 0;
  // For each key: sums the rows of each id and passes the sums to the updater, or stores them if
  // there is no updater.  Rows that do not exist start with the values of the key's initializer.  A
  // lazy optimizer changes only the pushed rows.  If the key was made by Init, its sum is zero in
  // all other rows, but a lazy optimizer leaves those unchanged.  `whole` has dense pushes of other
  // keys for the same call.  `verb` begins the message of an error.
  //   throws  as Push, and kOutOfRange (an id that the key does not have); nothing has changed
  virtual void PushRows(std::span<const RowsPushItem> items, std::span<const PushItem> whole = {},
                        std::string_view verb = "push_rows") = 0;
  // Copies rows of keys made by InitRows into arrays.
  //   throws  as Pull, and kOutOfRange, kInvalidArgument (a key that is not stored by rows)
  virtual void PullRows(std::span<const RowsPullItem> items,
                        std::string_view verb = "pull_rows") = 0;
  virtual Ticket PushRowsAsync(std::span<const RowsPushItem> items,
                               std::span<const PushItem> whole = {},
                               std::string_view verb = "push_rows");
  virtual Ticket PullRowsAsync(std::span<const RowsPullItem> items,
                               std::string_view verb = "pull_rows");

  // Returns the existing rows of a key made by InitRows, all at the version of this worker's last
  // push, while other workers continue.  Creates no rows.
  //   blocks  at most the patience until a save or an export of another worker has ended
  //   throws  as PullRows; kFailedPrecondition: a save or an export of this worker is running, or
  //           one of another worker has run for the whole patience
  virtual RowsExport ExportRows(const KeyView& key, const RowsFilter& filter = {}) = 0;
  // Replaces rows by new ones with these values.  Skips the updater, deletes the optimizer's state
  // of the old rows, and admits every row whatever the policy says.  In a distributed store only
  // the lowest live rank may call it, and in synchronous mode only between two barriers.
  //   throws  as PushRows, and kInvalidArgument (an id is there twice); kFailedPrecondition (a
  //           round has begun, another rank)
  virtual void ImportRows(const KeyView& key, const Rows& rows) = 0;
  // Returns the row counts and sizes of a key made by InitRows, over all servers.
  virtual TableStats StatsOfTable(const KeyView& key) = 0;

  // Gives keys new values, for example when a script loads weights.  The optimizer's states, counts
  // and rounds stay.  In a distributed store every worker calls it with the same keys, between two
  // steps; the values of the lowest live rank are used.
  //   shape   values: each with its key's shape and dtype, on any device
  //   blocks  until every worker has called it, at most the patience
  //   throws  kNotFound, kInvalidArgument (another shape or dtype, a key twice), kUnimplemented (a
  //           key by rows, an older server), kFailedPrecondition (a round is open, a worker that
  //           has been restarted while its job continues)
  virtual void Assign(std::span<const InitItem> items) = 0;

  // Removes a key; Init can create it again.  In a distributed store every worker calls it, between
  // two barriers.
  //   throws  kNotFound, kDeadlineExceeded, kFailedPrecondition
  virtual void Delete(const KeyView& key) = 0;

  // Replaces the updater; an empty function restores plain assignment.  Discards the state of an
  // earlier optimizer.
  //   throws  kUnimplemented (a function in a distributed store)
  virtual void SetUpdater(UpdateFunction updater, UpdateEnd end = {},
                          SumType sums = SumType::kOfKey) = 0;
  // Sets the optimizer.  In a distributed store rank 0 defines it for all.  If another rank sets
  // one with other hyperparameters, or sets one while rank 0 has none, the rounds that it pushes
  // fail (kInvalidArgument).
  virtual void SetOptimizer(std::shared_ptr<const Optimizer> optimizer) = 0;
  // Compresses this worker's later pushes of the keys whose names match the pattern (`*`, `?`,
  // `[a-z]`, `[!a-z]` as in docs/compression.md; an integer key matches by its digits).  If several
  // calls match a key, the last one counts.  A compression error that is not sent yet is added to
  // the key's next push, whatever the compression is then.
  //   shape   keys of float32, float16 or bfloat16; a push of another one fails
  //   throws  kInvalidArgument  an unknown type, a number out of its range
  //           kFailedPrecondition  a store that sends nothing: "local"
  virtual void SetGradientCompression(const Compression& compression,
                                      const std::string& keys = "*") = 0;

  // ---- on disk
  struct SnapshotInfo {
    std::string path;  // of the snapshot; empty on ranks that do not read it
    std::vector<std::pair<Key, uint64_t>> rounds;  // of each key, as Round returns them from now on
  };
  // Saves the values and the optimizer's state of all keys as a new snapshot in the folder `path`.
  // The state that a function of SetUpdater keeps itself is not saved.  A snapshot is a set of
  // safetensors files with an index; it appears whole or not at all.  The folder keeps the newest
  // two of the same stores.  A synchronous key is saved at the round of this worker's last push, an
  // asynchronous one in its current state.  Other workers continue meanwhile.  In a job only the
  // lowest live rank writes, on its machine; calls of other ranks do nothing.  A rank that has
  // become the lowest one writes nothing if the newest snapshot has the same keys, rounds and
  // values.
  //   returns  the path of the snapshot, PATH/000001 and so on; empty if this rank wrote nothing
  //   blocks   until all of it is on the disk
  //   throws   kResourceExhausted (the disk is full), kFailedPrecondition (no permission, another
  //            store is saving there), kUnavailable (another disk error); earlier snapshots are
  //            unchanged
  virtual std::string Save(const std::string& path) = 0;
  // The same on a thread of its own.  Returns when each key is fixed at its round, before the files
  // are written.  The ticket's `saved_path` is the result of Save.
  virtual Ticket SaveAsync(const std::string& path);
  // Restores values and states from the newest snapshot in `path`, or from the snapshot that `path`
  // names.  In a folder with snapshots of several stores, the newest one counts that has this
  // store.  The store must have the same keys, shapes and dtypes, and the same optimizer if the
  // snapshot has states.  In a job every worker calls it; the number of servers may differ.  Round
  // continues from the round at which a synchronous key was saved.
  //   throws  kNotFound, kDataLoss (naming the file and the key), kInvalidArgument (other keys,
  //           shapes or dtypes; keys of several stores, and none of this one), kFailedPrecondition
  //           (another optimizer, a newer format, rejoined() is true and nothing was pushed since);
  //           nothing has changed
  virtual SnapshotInfo Load(const std::string& path) = 0;
  // Creates the keys and the optimizer of a snapshot in a store without keys, then loads it as
  // Load.  In a job one worker verifies the snapshot before any worker creates keys.
  //   throws  as Load, and kFailedPrecondition (the store has keys), kUnimplemented (the states are
  //           of several optimizers).  A store without keys then still has none, and its updater
  //           is unchanged.  After an error of a server, keys may remain.
  SnapshotInfo Restore(const std::string& path);
  // Returns true if Load would find a snapshot there.
  //   throws  kDataLoss, kFailedPrecondition
  static bool HasSnapshot(const std::string& path);
  // Saves or loads only the optimizer's states, in one file.  Load takes no values from such a
  // file, but LoadStates can take states from a snapshot.  In a job every worker calls them, and
  // the lowest live rank writes the file.
  //   throws  SaveStates: as Save, kFailedPrecondition (no optimizer); LoadStates: as Load
  virtual void SaveStates(const std::string& file) = 0;
  virtual void LoadStates(const std::string& file) = 0;

  virtual std::string type() const = 0;
  virtual int rank() const = 0;
  virtual int num_workers() const = 0;
  // Waits until every worker has called it as often as this one.  The wait begins when the servers
  // have accepted this worker's earlier pushes.
  //   blocks  at most the patience
  //   throws  kDeadlineExceeded, kUnavailable, kFailedPrecondition (an observer's store)
  virtual void Barrier() = 0;
  virtual Ticket BarrierAsync();
  // Returns the number of this worker's last push of the key, even if the push is still queued.
  // After a restart of the worker it is the round from which the new incarnation continues.  After
  // Load it counts on from the round at which the key was saved.
  virtual uint64_t Round(const KeyView& key) const = 0;
  // Returns the step of this worker's last push of the key before it was restarted.  The step's
  // number is 0 if it made no such push, or was never restarted.
  //   throws  kNotFound
  virtual PushStep FormerStep(const KeyView& key) const;
  // Returns true if this worker goes on where an earlier incarnation of it was.  Returns false in
  // the first incarnation, and in a later one if no worker had pushed when it joined.  The program
  // then begins as the first time: it loads and passes its barriers.  A barrier that an earlier
  // incarnation had reached ends as it did before.
  virtual bool rejoined() const { return false; }
  // Returns the URL by which Connect finds the job; empty if no other process can reach it.
  virtual std::string url() const { return {}; }

  virtual size_t size() const = 0;  // number of keys
  virtual bool Contains(const KeyView& key) const = 0;
  // Returns the shape and dtype of a key.  `verb` begins the message of an error.
  //   throws  kNotFound
  virtual KeyInfo Describe(const KeyView& key, std::string_view verb = "describe") const = 0;
  virtual std::vector<Key> Keys() const = 0;  // in the order of Init
  // Returns the optimizer that a key of a distributed store currently has on its servers, with the
  // hyperparameters of its last update; null: pushes are assigned.
  //   blocks  for the server at most the server patience
  //   throws  kNotFound            no such key
  //           kFailedPrecondition  the store is closed, or has only one process
  //           kUnimplemented       the server is older
  virtual std::shared_ptr<Optimizer> UpdateOf(const KeyView& key) const;

  // Returns the current state of the job as reported by the head and the servers.  A server that
  // does not answer has an `error` in the result.
  //   blocks  for each server at most the server patience
  //   throws  kFailedPrecondition  the store is closed, or has only one process
  virtual JobStatus Status() const;
  // Returns counters of this store's work and waits so far.
  //   throws  kFailedPrecondition  the store is closed
  virtual StoreStats Stats() const = 0;
  // Returns how many processes of the job are dead according to the head; 0 in a store of one
  // process.
  //   node    a sum of 1 (the head), 2 (all servers) and 4 (all workers); or one process by its
  //           number in MXNet: 8 + 2 * rank of a server, 9 + 2 * rank of a worker
  //   throws  kInvalidArgument (no such number), kFailedPrecondition (the store is closed)
  int NumDeadNode(int node) const;

  // ---- a trace
  // Starts to record when each push, pull and update of a key begins and how long it takes, in this
  // process and, for all workers, in the servers.  Each process keeps its newest 262,144 spans.
  // The stores of a process that belong to one job share their trace.
  //   throws  kUnavailable (a server is out of reach), kUnimplemented (a server of an older
  //           version)
  virtual void StartTrace() = 0;
  // Stops recording until the next StartTrace.
  virtual void PauseTrace() = 0;
  struct TraceInfo {
    size_t spans = 0;
    uint64_t lost = 0;  // older ones that were not kept, and those that lacked memory
  };
  // Ends the trace and writes it to a file in Chrome's trace event format.  Times of servers are
  // converted to this process's clock; servers that cannot be reached are left out.
  //   throws  kFailedPrecondition (no trace was started), and as Save; the trace is kept then
  virtual TraceInfo WriteTrace(const std::string& file) = 0;

  // Frees all values.  A worker leaves the job when it closes its last store.  Later calls, except
  // Close, throw kFailedPrecondition.  Calls of other threads that wait for a key end at once.
  //   blocks  until running operations of other threads are done and servers have accepted all
  //           pushes, at most the patience
  //   throws  the error of an earlier call that nobody has seen; the store is closed then, too
  virtual void Close() = 0;
  // Closes the store of a worker whose program has failed: the other workers see it as dead,
  // instead of as having left.
  virtual void CloseAfterFailure() { Close(); }

 protected:
  // Returns the ticket of a call that has ended, with the path of the snapshot that it wrote.
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
