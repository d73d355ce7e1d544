// Saving and loading, as far as all kinds of stores share them.

#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "tkv/kvstore.h"

namespace tkv {

using checkpoint::SavedKey;

// The content that a call saves or loads: values and states, or the optimizer's states alone.
enum class Parts : uint8_t { kAll, kStates };

// Returns the absolute path, so that a later change of the working directory does not matter.
std::string AbsolutePath(const std::string& path);
// Returns the optimizer's hyperparameters for keys without a multiplier.
std::vector<double> ParamsOf(const Optimizer& optimizer);
// Returns true if two optimizers update these keys alike and keep the same states.
bool DoSame(const Optimizer& one, const Optimizer& other, std::span<const Key> keys);
// Returns the description of an optimizer that a snapshot keeps.
checkpoint::SavedProgram SavedProgramOf(const Optimizer& optimizer);
// Returns the optimizer that a snapshot describes.
//   throws  kDataLoss
std::shared_ptr<Optimizer> OptimizerOf(const checkpoint::SavedProgram& saved,
                                       const std::string& path, const Key& key);
// Fills in the description of a program and its states in a snapshot's key.
void DescribeProgram(const Program& program, bool multi_precision, std::vector<double> params,
                     SavedKey* key, bool lazy = true);
// Returns the program whose states the snapshot `path` has for a key.
//   throws  kDataLoss  the message names both
Program ProgramOf(const std::string& path, const SavedKey& saved);

// A source of the tensors of a snapshot, in the order of checkpoint::Writer::items.
class PartSource {
 public:
  virtual ~PartSource() = default;
  // Returns the next bytes of this item's tensor, valid until the next call.  Called until the
  // tensor's bytes are complete, and once for an empty tensor, which has none.
  virtual std::span<const std::byte> Next(const checkpoint::Item& item) = 0;
};

// Throws if a store has no optimizer, and so no states.
//   throws  kFailedPrecondition
void CheckHasStates(bool has_optimizer);

// The cancellation of a write by another thread.  A write ends cancelled or closed, and the first
// of the two wins.  Thread-safe.
class WriteCancellation {
 public:
  // Returns false if the write was closed before.
  bool Cancel() {
    State open = State::kOpen;
    return state_.compare_exchange_strong(open, State::kCancelled) || open == State::kCancelled;
  }
  bool is_cancelled() const { return state_ == State::kCancelled; }
  // Makes the write uncancellable, just before it takes effect.  Returns false if it was cancelled.
  bool Close() {
    State open = State::kOpen;
    return state_.compare_exchange_strong(open, State::kClosed);
  }

 private:
  enum class State : uint8_t { kOpen, kCancelled, kClosed };
  std::atomic<State> state_ = State::kOpen;
};

// Writes a snapshot into the folder `path`; a snapshot of states alone goes into the file `path`.
//   options  its `log` receives the progress, and its `interrupt` may end the write
//   returns  the path of the snapshot
//   throws   as checkpoint::Writer and the source do; kCancelled  it was cancelled.  Then the
//            previous content of `path` is unchanged and nothing else is left.
std::string WriteSnapshot(const std::string& path, Parts parts, std::vector<SavedKey> keys,
                          PartSource* source, const StoreOptions& options,
                          WriteCancellation* cancellation = nullptr);

// Opens a snapshot for the store with this number, and verifies every part that belongs to the
// store.
//   throws  as checkpoint::OpenStore; kDataLoss  a part is damaged, or keys by rows that no store could
//           have
checkpoint::Reader OpenSnapshot(const std::string& path, uint32_t store,
                                const StoreOptions& options);

// A key of a store into which a snapshot is to be loaded.
struct LoadedKey {
  Key key{KeyView(0)};
  Shape shape;
  DType dtype{};
  size_t chunks = 1;       // parts of the key, each with its own scalar states
  bool by_rows = false;    // `shape` is the shape of a row
  uint64_t row_count = 0;  // only by rows
  RowInitializer initializer = {};
  std::shared_ptr<const Optimizer> own = {};  // the key's own optimizer; null: the store's
};
// Returns, for each key of the store, the index of the snapshot's key.  Both have to have exactly
// the same keys.
//   optimizer  of the store; null: none
//   throws  kInvalidArgument    keys, shapes or dtypes differ; there are no values to load; or the
//                               states are of other chunks or buckets and cannot be redistributed
//           kFailedPrecondition the states belong to another optimizer than the store's
//           kDataLoss           the states do not fit the program that the snapshot names
std::vector<size_t> MatchKeys(const checkpoint::Reader& reader, std::span<const LoadedKey> keys,
                              const Optimizer* optimizer, Parts parts);

// Returns the index in `reader.keys()` of the states that an updater, a function, keeps for all
// keys; nullopt if there are none.
std::optional<size_t> FindUpdaterStates(const checkpoint::Reader& reader);
// Throws if a snapshot has such states, for a store that cannot take them.
//   throws  kFailedPrecondition
void CheckNoUpdaterStates(const checkpoint::Reader& reader);

// Checks the row sizes and the initializers of keys by rows.
//   throws  kDataLoss  a key by rows that no store could have; the message names the file and the
//           key
void CheckRowKeys(const checkpoint::Reader& reader);

// Throws if no store can be restored from a snapshot, as far as the descriptions of its keys show.
//   throws  as CheckNoUpdaterStates and CheckRowKeys
//           kInvalidArgument  it has states alone
//           kDataLoss         states that do not fit the program that the snapshot names
void CheckRestorable(const checkpoint::Reader& reader);

// The steps of KVStore::Restore.
struct RestoreSteps {
  const std::string& path;
  std::function<void()> check = {};                    // changes nothing
  std::function<KVStore::SnapshotInfo()> create = {};  // creates the optimizer and keys, and loads
  std::function<std::span<const SavedKey>()> created = {};  // the keys that `create` has created
};
// A store that leaves nothing behind if it cannot be restored.
class RestoresSnapshots {
 public:
  virtual ~RestoresSnapshots() = default;
  // Returns the store's number among those of its process, in the order of create().  Snapshots
  // tell the keys of stores apart by it.  A store outside of a job has number 0.
  virtual uint32_t number() const { return 0; }
  // Runs the steps.  If a step fails, removes the keys that were created and restores the updater.
  //   throws  as the steps
  virtual KVStore::SnapshotInfo Run(const RestoreSteps& steps) = 0;
};

// Returns the result of Load: the path, and the round of each key.
KVStore::SnapshotInfo InfoOf(const checkpoint::Reader& reader);

// Runs f and adds the verb to its errors, as "verb: ...", unless they begin with the verb already.
template <typename F>
auto Named(const char* verb, F f) {
  try {
    return f();
  } catch (const Error& error) {
    const std::string text = error.what();
    const std::string name = verb;  // not a view: a path may begin with the verb (save_dir)
    if (text.starts_with(name + ":") || text.starts_with(name + " ")) throw;
    throw error.WithMessage(name + ": " + text);
  }
}

}  // namespace tkv
