// What the stores share of saving and loading.

#pragma once

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/snapshot.h"
#include "tkv/kvstore.h"

namespace tkv {

using checkpoint::SavedKey;

// Which parts of keys a call is about.
enum class Parts : uint8_t { kAll, kStates };

// Where a path leads from here, wherever the process goes later.
std::string PlaceOf(const std::string& path);
// Its hyperparameters as they are for keys without a multiplier.
std::vector<double> ParamsOf(const Optimizer& optimizer);
// Returns true if two optimizers update these keys alike and keep the same states.
bool DoSame(const Optimizer& one, const Optimizer& other, std::span<const Key> keys);
checkpoint::SavedProgram SavedProgramOf(const Optimizer& optimizer);
// The optimizer that a snapshot has.
//   throws  kDataLoss
std::shared_ptr<Optimizer> OptimizerOf(const checkpoint::SavedProgram& saved,
                                       const std::string& path, const Key& key);
// A program and its states as a snapshot has them.
void DescribeProgram(const Program& program, bool multi_precision, std::vector<double> params,
                     SavedKey* key, bool lazy = true);
// The program whose states the snapshot `path` has of a key.
//   throws  kDataLoss  naming both
Program ProgramOf(const std::string& path, const SavedKey& saved);

// Hands over the parts of a snapshot, in the order in which they are written.
class PartSource {
 public:
  virtual ~PartSource() = default;
  // The next bytes of the part, until the next call; of an empty one none.
  virtual std::span<const std::byte> Next(const checkpoint::Item& item) = 0;
};

//   throws  kFailedPrecondition  a store without an optimizer, which has no states
void CheckHasStates(bool has_optimizer);

// Whether a write is given up or done: one of both is first, and stays so.  Thread-safe.
class GiveUp {
 public:
  // False where the write is done, or will be.
  bool Ask() {
    State open = State::kOpen;
    return state_.compare_exchange_strong(open, State::kGivenUp) || open == State::kGivenUp;
  }
  bool is_asked() const { return state_ == State::kGivenUp; }
  // From now on nobody gives it up; false where somebody has.
  bool Close() {
    State open = State::kOpen;
    return state_.compare_exchange_strong(open, State::kClosed);
  }

 private:
  enum class State : uint8_t { kOpen, kGivenUp, kClosed };
  std::atomic<State> state_ = State::kOpen;
};

// Writes a snapshot into the folder `path`, or, of states, the file.
//   returns  the path of the snapshot
//   throws   as checkpoint::Writer and the source do, and where it is given up kCancelled; nothing is
//            left then, and what was there before is there
std::string WriteSnapshot(const std::string& path, Parts parts, std::vector<SavedKey> keys,
                          PartSource* source, const StoreOptions& options,
                          GiveUp* give_up = nullptr);

// Opens a snapshot for a store, and verifies every part that is the store's.
//   store   number of the store, where the snapshot has keys of several and `path` names none
//   throws  as checkpoint::Reader and its TakeStore do
//           kDataLoss  keys by rows that no store could have
checkpoint::Reader OpenSnapshot(const std::string& path, uint32_t store,
                                const StoreOptions& options);

// A key of a store that is to be loaded.
struct LoadedKey {
  Key key{KeyView(0)};
  Shape shape;
  DType dtype{};
  size_t chunks = 1;
  bool by_rows = false;    // `shape` is that of a row then
  uint64_t row_count = 0;  // by rows
  RowInitializer initializer = {};
  std::shared_ptr<const Optimizer> own = {};  // the key's own optimizer; null: the store's
};
// For each key of the store the one of the snapshot: each has to be there, and no other.
//   optimizer  of the store; null: none
//   throws  kInvalidArgument    keys, shapes or dtypes differ, or there are no values to load
//           kFailedPrecondition the states are of another optimizer than the store has
//           kDataLoss           the states are not those of the program that the snapshot names, or
//                               the scalars of buckets differ where these are to be others
std::vector<size_t> MatchKeys(const checkpoint::Reader& reader, std::span<const LoadedKey> keys,
                              const Optimizer* optimizer, Parts parts);

// The place of the states that an updater, a function, keeps for all keys; none: there are none.
std::optional<size_t> PlaceOfUpdaterStates(const checkpoint::Reader& reader);
//   throws  kFailedPrecondition  there are such states, for a store that cannot take them
void CheckNoUpdaterStates(const checkpoint::Reader& reader);

//   throws  kDataLoss  naming the file and the key: it is by rows, and no store could have it
void CheckRowKeys(const checkpoint::Reader& reader);

KVStore::SnapshotInfo InfoOf(const checkpoint::Reader& reader);

// Errors of f begin with the verb: "verb: ..." or "verb key: ...", as some do already.
template <typename F>
auto Named(const char* verb, F f) {
  try {
    return f();
  } catch (const Error& error) {
    const std::string text = error.what();
    const std::string name = verb;  // a path may begin with it: save_dir
    if (text.starts_with(name + ":") || text.starts_with(name + " ")) throw;
    throw Error(error.code(), name + ": " + text);
  }
}

}  // namespace tkv
