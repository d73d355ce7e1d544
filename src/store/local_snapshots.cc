#include "store/local_snapshots.h"

#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "rows/row_table.h"
#include "store/table_parts.h"
#include "tensor/device_copy.h"

namespace tkv {
namespace {

// Throws if the updater is a function that keeps its states itself.
void CheckKnowsStates(const Updater& updater) {
  if (!updater.function || updater.states.take) return;
  throw Fail(Code::kFailedPrecondition,
             "the updater is a function, whose states the store does not know");
}

// Runs f and adds the key to its errors.  The caller adds the verb.
template <typename F>
NDArray Naming(const Entry& entry, F f) {
  try {
    return f();
  } catch (const Error& error) {
    throw error.WithMessage(Format("{}: {}", entry.key.view().ToString(), error.what()));
  }
}

// A source of the parts of claimed keys, read from their memory.
class EntryParts final : public PartSource {
 public:
  EntryParts(const Claim& claim, NDArray of_updater)
      : claim_(claim), of_updater_(std::move(of_updater)) {}
  std::span<const std::byte> Next(const checkpoint::Item& item) override {
    if (item.key == claim_.entries.size()) {
      return {static_cast<const std::byte*>(of_updater_.HostData()), of_updater_.bytes()};
    }
    const Entry& entry = *claim_.entries[item.key];
    if (entry.by_rows()) return NextOf(*entry.rows, item);
    const NDArray& array = item.part == checkpoint::kValuePart ? entry.value
                           : item.part == checkpoint::kMasterPart
                               ? entry.master
                               : entry.states[item.part - checkpoint::kStateParts];
    copy_ = IsOfDevice(array) ? Naming(entry, [&] { return array.WithContext({}); }) : array;
    return {static_cast<const std::byte*>(copy_.HostData()), copy_.bytes()};
  }

 private:
  std::span<const std::byte> NextOf(const RowsKey& rows, const checkpoint::Item& item) {
    const uint64_t scalar = item.part - checkpoint::kStateParts - rows.table.state_count();
    if (item.part < checkpoint::kStateParts || scalar >= rows.scalars.size()) {
      return table_.Next(rows.table, item);
    }
    return std::as_bytes(std::span(&rows.scalars[scalar], 1));
  }

  const Claim& claim_;
  const NDArray of_updater_;  // states of the updater, if it is a function
  NDArray copy_;              // copy of an array on a GPU
  TableParts table_;
};

SavedKey DescribeEntry(const Entry& entry) {
  SavedKey key;
  key.key = entry.key;
  key.dtype = entry.dtype();
  key.round = entry.rounds;
  key.by_rows = entry.by_rows();
  if (!entry.by_rows()) {
    key.shape = entry.value.shape();
    return key;
  }
  key.shape = entry.rows->row_shape;
  key.rows = entry.rows->table.size();
  key.row_count = entry.rows->row_count;
  key.initializer = entry.rows->table.initializer();
  key.policy = entry.rows->table.policy();
  key.candidates = entry.rows->table.candidates().size();
  key.row_version = entry.rows->table.version();
  if (entry.rows->own) key.own = SavedProgramOf(*entry.rows->own->optimizer);
  return key;
}

// A load of the keys of a claim.  Everything is read before anything changes.
class KeyLoader {
 public:
  //   throws  the errors of MatchKeys
  KeyLoader(const checkpoint::Reader& reader, Parts parts, Claim* claim)
      : reader_(reader),
        parts_(parts),
        claim_(*claim),
        matches_(MatchesOf(reader, parts, *claim)),
        contents_(claim->entries.size()) {}

  // Reads the content of each key.
  //   throws  the errors of the reader and of GPUs
  void Read() {
    for (size_t i = 0; i < contents_.size(); ++i) {
      if (SavedOf(i).by_rows) {
        ReadTable(i);
      } else {
        ReadArrays(i);
      }
    }
  }
  // Replaces the content of the keys.
  void Commit() {
    // Other calls read the shape of a value before they wait for its key.  The old values are freed
    // with the loader, after the lock is released.
    std::lock_guard lock(claim_.shared->mutex);
    for (size_t i = 0; i < contents_.size(); ++i) Replace(i);
  }

 private:
  // The content of a key in the snapshot.  After Commit: the content before it.
  struct Content {
    NDArray value, master;
    std::vector<NDArray> states;
    std::optional<RowTable> table;
    std::vector<double> scalars;
  };

  static std::vector<size_t> MatchesOf(const checkpoint::Reader& reader, Parts parts,
                                       const Claim& claim) {
    std::vector<LoadedKey> keys;
    for (const Entry* entry : claim.entries) {
      const SavedKey as_it_is = DescribeEntry(*entry);
      keys.push_back(
          {entry->key, as_it_is.shape, as_it_is.dtype, 1, as_it_is.by_rows, as_it_is.row_count,
           as_it_is.initializer,
           entry->by_rows() && entry->rows->own ? entry->rows->own->optimizer : nullptr});
    }
    return MatchKeys(reader, keys, claim.updater->optimizer.get(), parts);
  }
  const SavedKey& SavedOf(size_t i) const { return reader_.keys()[matches_[i]]; }
  NDArray ReadArray(size_t i, uint64_t part, const Shape& shape, DType dtype) const;
  NDArray ReadState(size_t i, uint64_t part) const;
  NDArray ReadScalar(size_t i, uint64_t part) const;
  void ReadTable(size_t i);
  void ReadArrays(size_t i);
  void Replace(size_t i);

  const checkpoint::Reader& reader_;
  const Parts parts_;
  Claim& claim_;
  const std::vector<size_t> matches_;  // the key in the snapshot of each key
  std::vector<Content> contents_;
};

void KeyLoader::ReadTable(size_t i) {
  const SavedKey& saved = SavedOf(i);
  const RowTable& table = claim_.entries[i]->rows->table;
  Content& content = contents_[i];
  content.table = parts_ == Parts::kAll ? table.Emptied() : table;
  content.table->StartStates(saved.arrays.size(), saved.has_master);
  ReadInto(reader_, matches_[i], parts_ == Parts::kAll, &*content.table);
  for (size_t s = 0; s < saved.scalars.size(); ++s) {
    reader_.Read(matches_[i], checkpoint::kStateParts + saved.arrays.size() + s,
                 std::as_writable_bytes(std::span(&content.scalars.emplace_back(), 1)));
  }
}

// Reads a part of a key to where the value is, or to the host if the value is on a GPU.
NDArray KeyLoader::ReadArray(size_t i, uint64_t part, const Shape& shape, DType dtype) const {
  const NDArray& value = claim_.entries[i]->value;
  NDArray array = NDArray::Empty(shape, dtype, IsOfDevice(value) ? Context() : value.context());
  reader_.Read(matches_[i], part, {static_cast<std::byte*>(array.HostData()), array.bytes()});
  return array;
}

// Reads an array of the optimizer.  A loaded value stays on the host until the next push moves it.
// If only states are loaded, they go where the value is.
NDArray KeyLoader::ReadState(size_t i, uint64_t part) const {
  const NDArray& value = claim_.entries[i]->value;
  NDArray state = ReadArray(i, part, value.shape(), ComputeType(value.dtype()));
  if (parts_ != Parts::kStates || !IsOfDevice(value)) return state;
  return Naming(*claim_.entries[i], [&] { return state.WithContext(value.context()); });
}

// Reads a scalar of the optimizer; a snapshot has one for each part of the key.
NDArray KeyLoader::ReadScalar(size_t i, uint64_t part) const {
  const auto count = static_cast<int64_t>(SavedOf(i).updates.size());
  const NDArray all = ReadArray(i, part, {count}, DType::kF64);
  NDArray scalar = NDArray::Empty({1}, DType::kF64, all.context());
  std::memcpy(scalar.HostData(), all.HostData(), sizeof(double));
  return scalar;
}

void KeyLoader::ReadArrays(size_t i) {
  const SavedKey& saved = SavedOf(i);
  const NDArray& value = claim_.entries[i]->value;
  Content& content = contents_[i];
  if (parts_ == Parts::kAll) {
    content.value = ReadArray(i, checkpoint::kValuePart, value.shape(), value.dtype());
  }
  if (saved.has_master) content.master = ReadState(i, checkpoint::kMasterPart);
  uint64_t part = checkpoint::kStateParts;
  for (size_t s = 0; s < saved.arrays.size(); ++s) content.states.push_back(ReadState(i, part++));
  for (size_t s = 0; s < saved.scalars.size(); ++s) content.states.push_back(ReadScalar(i, part++));
}

void KeyLoader::Replace(size_t i) {
  Entry& entry = *claim_.entries[i];
  Content& content = contents_[i];
  if (parts_ == Parts::kAll) {
    std::swap(entry.value, content.value);
    entry.residuals.clear();  // they belong to pushes after the snapshot
    entry.rounds = SavedOf(i).round;
  }
  if (entry.by_rows()) {
    std::swap(entry.rows->table, *content.table);
    std::swap(entry.rows->scalars, content.scalars);
  }
  std::swap(entry.master, content.master);
  std::swap(entry.states, content.states);
  entry.updates = SavedOf(i).updates[0];
  const bool has_states =
      !entry.states.empty() || entry.updates > 0 ||
      (entry.by_rows() && (entry.rows->table.state_count() > 0 || !entry.rows->scalars.empty()));
  entry.state_of = has_states ? StateOwnerOf(entry, *claim_.updater) : nullptr;
}

// Returns the states of a function; none: the snapshot has none.
std::optional<NDArray> ReadUpdaterStates(const checkpoint::Reader& reader,
                                         const std::optional<size_t>& place) {
  if (!place) return std::nullopt;
  NDArray states = NDArray::Empty(reader.keys()[*place].shape, DType::kU8);
  reader.Read(*place, checkpoint::kValuePart,
              {static_cast<std::byte*>(states.HostData()), states.bytes()});
  return states;
}

}  // namespace

std::string SaveKeys(const Claim& claim, const std::string& path, Parts parts) {
  const Updater& updater = *claim.updater;
  if (parts == Parts::kStates) {
    CheckKnowsStates(updater);
    CheckHasStates(updater.optimizer != nullptr || updater.function);
  }
  std::vector<SavedKey> keys;
  for (const Entry* entry : claim.entries) {
    SavedKey key = DescribeEntry(*entry);
    key.has_value = parts == Parts::kAll;
    const auto& its = OptimizerOf(*entry, *claim.updater);
    if (its != nullptr && entry->state_of == StateOwnerOf(*entry, *claim.updater)) {
      DescribeProgram(its->program(), its->multi_precision(), ParamsOf(*its), &key, its->lazy());
      key.has_master =
          entry->by_rows() ? entry->rows->table.has_master() : static_cast<bool>(entry->master);
      key.updates = {entry->updates};
    }
    keys.push_back(std::move(key));
  }
  NDArray of_updater;
  if (updater.states.take) of_updater = updater.states.take().value_or(NDArray());
  if (parts == Parts::kStates && updater.function && !of_updater) {
    throw Fail(Code::kFailedPrecondition,
               "the updater is a function that has asked for no state yet (kv.state in Python)");
  }
  if (of_updater) {
    SavedKey key;
    key.key = Key(KeyView("#updater"));
    key.dtype = DType::kU8;
    key.shape = of_updater.shape();
    key.is_of_updater = true;
    keys.push_back(std::move(key));
  }
  EntryParts source(claim, of_updater);
  return WriteSnapshot(path, parts, std::move(keys), &source, claim.options);
}

void LoadKeys(const checkpoint::Reader& reader, Parts parts, Claim* claim) {
  const Updater& updater = *claim->updater;
  if (parts == Parts::kStates) CheckKnowsStates(updater);
  const auto of_updater = FindUpdaterStates(reader);
  if (!updater.states.put) CheckNoUpdaterStates(reader);
  KeyLoader loader(reader, parts, claim);
  loader.Read();
  if (updater.states.put) updater.states.put(ReadUpdaterStates(reader, of_updater));
  loader.Commit();
}

}  // namespace tkv
