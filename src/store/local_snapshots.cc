#include "store/local_snapshots.h"

#include <cstring>
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
    throw Fail(error.code(), "{}: {}", entry.key.view().ToString(), error.what());
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
  key.candidates = entry.rows->table.candidate_count();
  key.row_version = entry.rows->table.version();
  if (entry.rows->own) key.own = SavedProgramOf(*entry.rows->own->optimizer);
  return key;
}

}  // namespace

std::string SaveKeys(const Claim& claim, const std::string& path, Parts parts,
                     const StoreOptions& options) {
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
    if (its != nullptr && entry->state_of == StateOf(*entry, *claim.updater)) {
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
  return WriteSnapshot(path, parts, std::move(keys), &source, options);
}

void LoadKeys(const checkpoint::Reader& reader, Parts parts, Claim* claim) {
  const Updater& updater = *claim->updater;
  if (parts == Parts::kStates) CheckKnowsStates(updater);
  const auto of_updater = PlaceOfUpdaterStates(reader);
  if (!updater.states.put) CheckNoUpdaterStates(reader);
  std::vector<LoadedKey> keys;
  for (const Entry* entry : claim->entries) {
    const SavedKey as_it_is = DescribeEntry(*entry);
    keys.push_back({entry->key, as_it_is.shape, as_it_is.dtype, 1, as_it_is.by_rows,
                    as_it_is.row_count, as_it_is.initializer,
                    entry->by_rows() && entry->rows->own ? entry->rows->own->optimizer : nullptr});
  }
  const auto& optimizer = claim->updater->optimizer;
  const std::vector<size_t> matches = MatchKeys(reader, keys, optimizer.get(), parts);
  struct Loaded {
    NDArray value, master;
    std::vector<NDArray> states;
    std::optional<RowTable> table;
    std::vector<double> scalars;
  };
  std::vector<Loaded> loaded(keys.size());  // everything is read before anything changes
  for (size_t i = 0; i < keys.size(); ++i) {
    const SavedKey& saved = reader.keys()[matches[i]];
    if (saved.by_rows) {
      const RowTable& table = claim->entries[i]->rows->table;
      loaded[i].table = parts == Parts::kAll ? table.Emptied() : table;
      loaded[i].table->StartStates(saved.arrays.size(), saved.has_master);
      ReadInto(reader, matches[i], parts == Parts::kAll, &*loaded[i].table);
      for (size_t s = 0; s < saved.scalars.size(); ++s) {
        reader.Read(matches[i], checkpoint::kStateParts + saved.arrays.size() + s,
                    std::as_writable_bytes(std::span(&loaded[i].scalars.emplace_back(), 1)));
      }
      continue;
    }
    const NDArray& value = claim->entries[i]->value;
    const Context where = IsOfDevice(value) ? Context() : value.context();
    const auto read = [&](uint64_t part, const Shape& shape, DType dtype) {
      NDArray array = NDArray::Empty(shape, dtype, where);
      reader.Read(matches[i], part, {static_cast<std::byte*>(array.HostData()), array.bytes()});
      return array;
    };
    const DType compute = ComputeType(value.dtype());
    // A loaded value stays on the host until the next push moves it.  If only states are loaded,
    // they go where the value is.
    const bool stays_on_gpu = parts == Parts::kStates && IsOfDevice(value);
    const auto read_state = [&](uint64_t part) {
      NDArray state = read(part, value.shape(), compute);
      if (!stays_on_gpu) return state;
      return Naming(*claim->entries[i], [&] { return state.WithContext(value.context()); });
    };
    if (parts == Parts::kAll) {
      loaded[i].value = read(checkpoint::kValuePart, value.shape(), value.dtype());
    }
    if (saved.has_master) {
      loaded[i].master = read_state(checkpoint::kMasterPart);
    }
    uint64_t part = checkpoint::kStateParts;
    for (size_t s = 0; s < saved.arrays.size(); ++s) {
      loaded[i].states.push_back(read_state(part++));
    }
    for (size_t s = 0; s < saved.scalars.size(); ++s) {
      const NDArray all = read(part++, {static_cast<int64_t>(saved.updates.size())}, DType::kF64);
      NDArray scalar = NDArray::Empty({1}, DType::kF64, where);
      std::memcpy(scalar.HostData(), all.HostData(), sizeof(double));
      loaded[i].states.push_back(std::move(scalar));
    }
  }
  if (updater.states.put) {
    NDArray states;
    if (of_updater) {
      states = NDArray::Empty(reader.keys()[*of_updater].shape, DType::kU8);
      reader.Read(*of_updater, checkpoint::kValuePart,
                  {static_cast<std::byte*>(states.HostData()), states.bytes()});
    }
    updater.states.put(of_updater ? std::optional(states) : std::nullopt);
  }
  {
    // Other calls read the shape of a value before they wait for its key.  The old values are freed
    // with `loaded`, after the lock is released.
    std::lock_guard lock(claim->shared->mutex);
    for (size_t i = 0; i < keys.size(); ++i) {
      Entry& entry = *claim->entries[i];
      if (parts == Parts::kAll) {
        std::swap(entry.value, loaded[i].value);
        entry.residuals.clear();  // they belong to pushes after the snapshot
      }
      if (entry.by_rows()) {
        std::swap(entry.rows->table, *loaded[i].table);
        std::swap(entry.rows->scalars, loaded[i].scalars);
      }
      std::swap(entry.master, loaded[i].master);
      std::swap(entry.states, loaded[i].states);
      entry.updates = reader.keys()[matches[i]].updates[0];
      if (parts == Parts::kAll) entry.rounds = reader.keys()[matches[i]].round;
      const bool has_states = !entry.states.empty() || entry.updates > 0 ||
                              (entry.by_rows() && (entry.rows->table.state_count() > 0 ||
                                                   !entry.rows->scalars.empty()));
      entry.state_of = has_states ? StateOf(entry, *claim->updater) : nullptr;
    }
  }
}

}  // namespace tkv
