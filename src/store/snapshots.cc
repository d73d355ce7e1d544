#include "store/snapshots.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <system_error>

#include "base/format.h"
#include "checkpoint/search.h"
#include "checkpoint/writer.h"
#include "rows/initial_row.h"

namespace tkv {
namespace {

using Clock = std::chrono::steady_clock;

// The progress of a long call: handles signals about every 50 ms and logs the progress about every
// 5 s.
class Progress {
 public:
  Progress(const char* what, std::string path, uint64_t total, const StoreOptions& options)
      : what_(what), path_(std::move(path)), total_(total), options_(options) {}

  void At(uint64_t done) {
    const auto now = Clock::now();
    if (options_.interrupt && now - looked_ > std::chrono::milliseconds(50)) {
      looked_ = now;
      options_.interrupt();
    }
    if (!options_.log || now - told_ < std::chrono::seconds(5)) return;
    told_ = now;
    constexpr double kMebi = 1 << 20;
    options_.log(1, Format("{} {}: {:.0f} of {:.0f} MiB", what_, path_,
                           static_cast<double>(done) / kMebi, static_cast<double>(total_) / kMebi));
  }

 private:
  const char* what_;
  const std::string path_;
  const uint64_t total_;
  const StoreOptions& options_;
  Clock::time_point looked_ = Clock::now(), told_ = looked_;
};

bool HasStates(const SavedKey& key) {
  const auto is_updated = [](uint64_t count) { return count > 0; };
  return !key.arrays.empty() || !key.scalars.empty() || key.has_master ||
         std::any_of(key.updates.begin(), key.updates.end(), is_updated);
}

std::vector<std::string> ScalarNames(const Program& program) {
  std::vector<std::string> names;
  for (const Program::ScalarState& scalar : program.scalar_states()) names.push_back(scalar.name);
  return names;
}

// Throws if the saved states are not those of the program.  A file may contain anything, and the
// states would be used without a further check.
void CheckFit(const std::string& path, const SavedKey& saved, const Program& program) {
  const auto wrong = [&](const char* what, std::string found, std::string wanted) {
    return Fail(Code::kDataLoss, "{}: key {}: {} ({}), the program '{}' keeps ({})", path,
                saved.key.view().ToString(), what, found, program.name(), wanted);
  };
  if (saved.arrays != program.states()) {
    throw wrong("arrays", Join(saved.arrays, ", "), Join(program.states(), ", "));
  }
  const std::vector<std::string> scalars = ScalarNames(program);
  if (saved.scalars != scalars) {
    throw wrong("scalars", Join(saved.scalars, ", "), Join(scalars, ", "));
  }
  const bool needs_master =
      saved.program.multi_precision && ComputeType(saved.dtype) != saved.dtype;
  if (saved.has_master != needs_master) {
    throw Fail(Code::kDataLoss, "{}: key {}: {} with multi_precision={} has {}", path,
               saved.key.view().ToString(), Name(saved.dtype), saved.program.multi_precision,
               needs_master ? "no master" : "a master");
  }
}

void CheckHasValue(const std::string& path, const SavedKey& saved) {
  if (saved.has_value) return;
  throw Fail(Code::kInvalidArgument, "{} has states alone; load_optimizer_states reads it", path);
}

// Returns true if all buckets of a key have the same scalars; other buckets can then continue with
// them.  They are the same if each push had a part for every bucket.
bool AreEven(const checkpoint::Reader& reader, size_t index) {
  const SavedKey& saved = reader.keys()[index];
  std::vector<uint64_t> scalars(saved.updates.size());  // bits of each scalar
  for (size_t s = 0; s < saved.scalars.size(); ++s) {
    reader.Read(index, checkpoint::kStateParts + saved.arrays.size() + s,
                std::as_writable_bytes(std::span(scalars)));
    const auto is_first = [&](uint64_t bits) { return bits == scalars[0]; };
    if (!std::all_of(scalars.begin(), scalars.end(), is_first)) return false;
  }
  return true;
}

void CheckStates(const checkpoint::Reader& reader, size_t index, const LoadedKey& key,
                 const Optimizer* of_store) {
  const Optimizer* const optimizer = key.own ? key.own.get() : of_store;
  const std::string& path = reader.path();
  const SavedKey& saved = reader.keys()[index];
  if (!HasStates(saved)) return;
  const std::string name = key.key.view().ToString();
  const bool is_known = optimizer != nullptr && saved.program.text == optimizer->program().ToText();
  const Program program = is_known ? optimizer->program() : ProgramOf(path, saved);
  CheckFit(path, saved, program);
  if (optimizer == nullptr) {
    throw Fail(Code::kFailedPrecondition,
               "key {}: the snapshot has states of '{}', and the store has no optimizer; "
               "set_optimizer comes first",
               name, program.name());
  }
  if (!is_known || saved.program.multi_precision != optimizer->multi_precision()) {
    throw Fail(Code::kFailedPrecondition,
               "key {}: the states are of '{}'{}, the store's optimizer is '{}'{}", name,
               program.name(), saved.program.multi_precision ? " with multi_precision" : "",
               optimizer->program().name(),
               optimizer->multi_precision() ? " with multi_precision" : "");
  }
  const auto is_first = [&](uint64_t count) { return count == saved.updates[0]; };
  const bool is_even = std::all_of(saved.updates.begin(), saved.updates.end(), is_first);
  if (saved.updates.size() == key.chunks) return;
  if (saved.by_rows && (!is_even || !AreEven(reader, index))) {
    throw Fail(
        Code::kInvalidArgument,
        "key {}: its rows are in {} buckets, and were saved in {} that have not had the same "
        "updates",
        name, key.chunks, saved.updates.size());
  }
  if (!saved.by_rows && (!is_even || !saved.scalars.empty())) {
    throw Fail(Code::kInvalidArgument, "key {}: {} chunks, {} were saved", name, key.chunks,
               saved.updates.size());
  }
}

std::string TextOf(const RowInitializer& initializer) {
  switch (initializer.kind) {
    case RowInitializer::Kind::kConstant:
      return Format("{}", initializer.a);
    case RowInitializer::Kind::kUniform:
      return Format("uniform from {} to {}, seed {}", initializer.a, initializer.b,
                    initializer.seed);
    case RowInitializer::Kind::kNormal:
      return Format("normal with mean {} and deviation {}, seed {}", initializer.a, initializer.b,
                    initializer.seed);
  }
  return "?";
}

// Throws if rows of a key differ in number or in their initializer.  The initializer is part of the
// key's value, because it determines the rows that do not exist yet.
void CheckSameRows(const std::string& path, const SavedKey& saved, const LoadedKey& key) {
  const std::string name = key.key.view().ToString();
  if (saved.by_rows != key.by_rows) {
    throw Fail(Code::kInvalidArgument, "key {}: {} in {}, {} in the store", name,
               saved.by_rows ? "by rows" : "dense", path, key.by_rows ? "by rows" : "dense");
  }
  if (!saved.by_rows) return;
  if (saved.row_count != key.row_count) {
    throw Fail(Code::kInvalidArgument, "key {}: {} rows in {}, {} in the store", name,
               saved.row_count, path, key.row_count);
  }
  if (saved.initializer != key.initializer) {
    RowInitializer of_its_seed = key.initializer;
    of_its_seed.seed = saved.initializer.seed;
    const bool is_drawn = of_its_seed == saved.initializer;
    throw Fail(Code::kInvalidArgument, "key {}: rows begin as {} in {}, as {} in the store{}", name,
               TextOf(saved.initializer), path, TextOf(key.initializer),
               is_drawn ? "; the same tkv.random.seed before init_table makes them equal, and "
                          "--restore makes the table itself"
                        : "");
  }
}

}  // namespace

std::string AbsolutePath(const std::string& path) {
  if (path.empty()) return path;
  std::error_code failed;
  const std::filesystem::path place = std::filesystem::absolute(path, failed);
  return failed ? path : place.string();
}

std::vector<double> ParamsOf(const Optimizer& optimizer) {
  std::vector<double> params;
  for (const Program::Param& param : optimizer.program().params()) {
    params.push_back(optimizer.param(param.name));
  }
  return params;
}

bool DoSame(const Optimizer& one, const Optimizer& other, std::span<const Key> keys) {
  const bool is_same = one.program().ToText() == other.program().ToText() &&
                       one.multi_precision() == other.multi_precision() &&
                       one.lazy() == other.lazy() && ParamsOf(one) == ParamsOf(other);
  return is_same && std::all_of(keys.begin(), keys.end(), [&](const Key& key) {
           return one.ParamsFor(key.view()) == other.ParamsFor(key.view());
         });
}

void DescribeProgram(const Program& program, bool multi_precision, std::vector<double> params,
                     SavedKey* key, bool lazy) {
  key->program = {program.ToText(), multi_precision, std::move(params), lazy};
  key->arrays = program.states();
  key->scalars = ScalarNames(program);
}

static Program ProgramOf(const std::string& path, const Key& key, const std::string& text) {
  try {
    return Program::Parse(text);
  } catch (const Error& error) {
    throw Fail(Code::kDataLoss, "{}: key {}: it has states of a program that cannot be read: {}",
               path, key.view().ToString(), error.what());
  }
}

Program ProgramOf(const std::string& path, const SavedKey& saved) {
  return ProgramOf(path, saved.key, saved.program.text);
}

checkpoint::SavedProgram SavedProgramOf(const Optimizer& optimizer) {
  return {optimizer.program().ToText(), optimizer.multi_precision(), ParamsOf(optimizer),
          optimizer.lazy()};
}

std::shared_ptr<Optimizer> OptimizerOf(const checkpoint::SavedProgram& saved,
                                       const std::string& path, const Key& key) {
  auto optimizer = std::make_shared<Optimizer>(ProgramOf(path, key, saved.text),
                                               saved.multi_precision, saved.lazy);
  const auto& params = optimizer->program().params();
  for (size_t i = 0; i < std::min(params.size(), saved.params.size()); ++i) {
    optimizer->SetParam(params[i].name, saved.params[i]);
  }
  return optimizer;
}

void CheckHasStates(bool has_optimizer) {
  if (has_optimizer) return;
  throw Fail(Code::kFailedPrecondition,
             "the store has no optimizer, and so no states; set_optimizer comes first");
}

std::string WriteSnapshot(const std::string& path, Parts parts, std::vector<SavedKey> keys,
                          PartSource* source, const StoreOptions& options,
                          WriteCancellation* cancellation) {
  const auto cancelled = [&] { return Fail(Code::kCancelled, "{}: given up", path); };
  checkpoint::CheckPath(path);
  checkpoint::Writer writer = parts == Parts::kAll
                                  ? checkpoint::Writer::Folder(path, std::move(keys))
                                  : checkpoint::Writer::SingleFile(path, std::move(keys));
  Progress progress("save", path, writer.bytes(), options);
  uint64_t done = 0;
  for (const checkpoint::Item& item : writer.items()) {
    if (cancellation != nullptr && cancellation->is_cancelled()) throw cancelled();
    const uint64_t end = done + item.tensor.bytes();
    do {
      const std::span<const std::byte> bytes = source->Next(item);
      writer.Write(bytes);
      progress.At(done += bytes.size());
    } while (done < end);
  }
  if (cancellation != nullptr && !cancellation->Close()) throw cancelled();
  return writer.Commit();
}

checkpoint::Reader OpenSnapshot(const std::string& path, uint32_t store,
                                const StoreOptions& options) {
  checkpoint::Reader reader = checkpoint::OpenStore(path, store);
  CheckRowKeys(reader);
  Progress progress("load", path, reader.bytes(), options);
  reader.Verify([&](uint64_t done) { progress.At(done); });
  return reader;
}

std::vector<size_t> MatchKeys(const checkpoint::Reader& reader, std::span<const LoadedKey> keys,
                              const Optimizer* optimizer, Parts parts) {
  std::map<Key, size_t> saved;
  for (size_t i = 0; i < reader.keys().size(); ++i) {
    if (!reader.keys()[i].is_of_updater) saved.emplace(reader.keys()[i].key, i);
  }
  std::vector<size_t> matches;
  for (const LoadedKey& key : keys) {
    const std::string name = key.key.view().ToString();
    const auto found = saved.find(key.key);
    if (found == saved.end()) {
      throw Fail(Code::kInvalidArgument, "key {}: {} has no such key", name, reader.path());
    }
    const SavedKey& from = reader.keys()[found->second];
    CheckSameRows(reader.path(), from, key);
    if (from.shape != key.shape || from.dtype != key.dtype) {
      throw Fail(Code::kInvalidArgument, "key {}: shape {} {} in {}, {} {} in the store", name,
                 from.shape.ToString(), Name(from.dtype), reader.path(), key.shape.ToString(),
                 Name(key.dtype));
    }
    if (parts == Parts::kAll) CheckHasValue(reader.path(), from);
    CheckStates(reader, found->second, key, optimizer);
    matches.push_back(found->second);
    saved.erase(found);
  }
  if (!saved.empty()) {
    throw Fail(Code::kInvalidArgument,
               "{} has key {}{}, which the store does not have; init {} first", reader.path(),
               saved.begin()->first.view().ToString(),
               saved.size() > 1 ? Format(" and {} others", saved.size() - 1) : "",
               saved.size() > 1 ? "them" : "it");
  }
  return matches;
}

std::optional<size_t> FindUpdaterStates(const checkpoint::Reader& reader) {
  const auto& keys = reader.keys();
  const auto found =
      std::find_if(keys.begin(), keys.end(), [](const SavedKey& key) { return key.is_of_updater; });
  if (found == keys.end()) return std::nullopt;
  return static_cast<size_t>(found - keys.begin());
}

void CheckNoUpdaterStates(const checkpoint::Reader& reader) {
  if (!FindUpdaterStates(reader)) return;
  throw Fail(Code::kFailedPrecondition,
             "{}: it has states of an updater that is Python code; a store of one process loads "
             "them, after set_updater or set_optimizer with the same one",
             reader.path());
}

void CheckRowKeys(const checkpoint::Reader& reader) {
  for (const SavedKey& key : reader.keys()) {
    if (!key.by_rows) continue;
    const std::string name = key.key.view().ToString();
    const auto elements = static_cast<size_t>(key.shape.size());
    if (elements > kRowBytesMax / ItemSize(key.dtype)) {
      throw Fail(Code::kDataLoss,
                 "{}: key {}: a row has {} elements of {}, at most {} bytes are "
                 "possible",
                 reader.path(), name, elements, Name(key.dtype), kRowBytesMax);
    }
    try {
      const InitialRow initial(key.dtype, elements, key.initializer);
    } catch (const Error& error) {
      if (error.code() != Code::kInvalidArgument) throw;
      throw Fail(Code::kDataLoss, "{}: key {}: {}", reader.path(), name, error.what());
    }
  }
}

void CheckRestorable(const checkpoint::Reader& reader) {
  CheckRowKeys(reader);
  CheckNoUpdaterStates(reader);
  std::optional<Program> program;
  std::string text;
  for (const SavedKey& key : reader.keys()) {
    CheckHasValue(reader.path(), key);
    if (!key.own.text.empty()) OptimizerOf(key.own, reader.path(), key.key);
    if (!HasStates(key)) continue;
    if (!program || text != key.program.text) {  // most keys have the same one
      program = ProgramOf(reader.path(), key);
      text = key.program.text;
    }
    CheckFit(reader.path(), key, *program);
  }
}

KVStore::SnapshotInfo InfoOf(const checkpoint::Reader& reader) {
  KVStore::SnapshotInfo info;
  info.path = reader.path();
  for (const SavedKey& key : reader.keys()) {
    if (!key.is_of_updater) info.rounds.emplace_back(key.key, key.round);
  }
  return info;
}

}  // namespace tkv
