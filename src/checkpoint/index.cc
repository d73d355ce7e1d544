#include "checkpoint/index.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/format.h"
#include "base/key_text.h"
#include "checkpoint/checksum.h"
#include "checkpoint/json.h"

namespace tkv::checkpoint {
namespace {

constexpr uint64_t kFormat = 1;
constexpr uint64_t kRowsFormat = 2;    // if there are keys by rows
constexpr uint64_t kStoresFormat = 3;  // if there are keys of several stores
constexpr size_t kBucketsMax = size_t{1024} * 16;

// Returns a double as text that parses to the same value.  A text, because JSON has no infinities.
std::string TextOfDouble(double value) { return Format("{}", value); }

double DoubleOf(const std::string& text) {
  if (text == "inf") return INFINITY;
  if (text == "-inf") return -INFINITY;
  if (text == "nan" || text == "-nan") return NAN;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Fail(Code::kDataLoss, "'{}' is no number", text);
  }
  return value;
}

const char* Name(RowInitializer::Kind kind) {
  switch (kind) {
    case RowInitializer::Kind::kConstant:
      return "constant";
    case RowInitializer::Kind::kUniform:
      return "uniform";
    case RowInitializer::Kind::kNormal:
      return "normal";
  }
  return "?";
}

json::object EntryOf(const RowInitializer& initializer) {
  return {{"kind", Name(initializer.kind)},
          {"a", TextOfDouble(initializer.a)},
          {"b", TextOfDouble(initializer.b)},
          {"seed", initializer.seed}};
}

RowInitializer InitializerOf(const json::object& object) {
  RowInitializer initializer;
  const std::string kind = TextOf(Field(object, "kind"), "kind");
  for (const auto known : {RowInitializer::Kind::kUniform, RowInitializer::Kind::kNormal}) {
    if (kind == Name(known)) initializer.kind = known;
  }  // else it has to be the default, a constant
  if (kind != Name(initializer.kind)) {
    throw Fail(Code::kDataLoss, "there is no initializer '{}'", kind);
  }
  initializer.a = DoubleOf(TextOf(Field(object, "a"), "a"));
  initializer.b = DoubleOf(TextOf(Field(object, "b"), "b"));
  if (!std::isfinite(initializer.a) || !std::isfinite(initializer.b)) {
    throw Fail(Code::kDataLoss, "an initializer with {} and {}", initializer.a, initializer.b);
  }
  initializer.seed = NumberOf(Field(object, "seed"), "seed");
  return initializer;
}

constexpr RowPolicy::Score kScores[] = {RowPolicy::Score::kAge, RowPolicy::Score::kCount,
                                        RowPolicy::Score::kNorm};

const char* Name(RowPolicy::Score score) {
  switch (score) {
    case RowPolicy::Score::kAge:
      return "age";
    case RowPolicy::Score::kCount:
      return "count";
    case RowPolicy::Score::kNorm:
      return "norm";
  }
  return "?";
}

json::object EntryOf(const RowPolicy& policy) {
  json::object entry{{"admit", policy.admit_count}, {"age", policy.age_max},
                     {"rows", policy.rows_max},     {"score", Name(policy.score)},
                     {"notes", policy.has_notes},   {"memory", policy.memory_max}};
  if (policy.replaces_all) entry["replaces_all"] = true;
  return entry;
}

RowPolicy PolicyOf(const json::object& object) {
  RowPolicy policy;
  const uint64_t admit = NumberOf(Field(object, "admit"), "admit");
  if (admit == 0 || admit > RowPolicy::kAdmitMax) {
    throw Fail(Code::kDataLoss, "rows are made by the push of number {}", admit);
  }
  policy.admit_count = static_cast<uint32_t>(admit);
  policy.age_max = NumberOf(Field(object, "age"), "age");
  policy.rows_max = NumberOf(Field(object, "rows"), "rows");
  const std::string score = TextOf(Field(object, "score"), "score");
  for (const auto known : kScores) {
    if (score == Name(known)) policy.score = known;
  }
  if (score != Name(policy.score)) throw Fail(Code::kDataLoss, "there is no score '{}'", score);
  policy.has_notes = BoolOf(Field(object, "notes"), "notes");
  // Snapshots of earlier releases have none.
  if (const json::value* const memory = object.if_contains("memory")) {
    policy.memory_max = NumberOf(*memory, "memory");
  }
  if (const json::value* const replaces = object.if_contains("replaces_all")) {
    policy.replaces_all = BoolOf(*replaces, "replaces_all");
  }
  return policy;
}

json::array TextsOf(const std::vector<std::string>& texts) {
  json::array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return array;
}

std::vector<std::string> TextsOf(const json::object& object, const char* name) {
  std::vector<std::string> texts;
  for (const json::value& text : ArrayOf(Field(object, name), name)) {
    texts.push_back(TextOf(text, name));
  }
  return texts;
}

SavedProgram ProgramOf(const json::object& entry) {
  SavedProgram program;
  program.text = TextOf(Field(entry, "text"), "text");
  program.multi_precision = BoolOf(Field(entry, "multi_precision"), "multi_precision");
  for (const std::string& param : TextsOf(entry, "params")) {
    program.params.push_back(DoubleOf(param));
  }
  if (entry.contains("lazy")) program.lazy = BoolOf(Field(entry, "lazy"), "lazy");
  return program;
}

// Reads the additional fields of an entry that is not a dense value.
void AddLayout(const json::object& entry, SavedKey* key) {
  if (!entry.contains("layout")) return;
  const std::string layout = TextOf(Field(entry, "layout"), "layout");
  key->is_of_updater = layout == "updater";
  if (key->is_of_updater) return;
  if (layout != "rows") throw Fail(Code::kDataLoss, "there is no layout '{}'", layout);
  key->by_rows = true;
  key->rows = NumberOf(Field(entry, "rows"), "rows");
  key->row_count = NumberOf(Field(entry, "row_count"), "row_count");
  key->initializer = InitializerOf(ObjectOf(Field(entry, "initializer"), "initializer"));
  if (entry.contains("row_version")) {
    key->row_version = NumberOf(Field(entry, "row_version"), "row_version");
  }
  if (entry.contains("policy")) {
    key->policy = PolicyOf(ObjectOf(Field(entry, "policy"), "policy"));
  }
  if (entry.contains("candidates")) {
    key->candidates = NumberOf(Field(entry, "candidates"), "candidates");
  }
  const uint64_t most = std::max(key->rows, key->candidates);
  if (key->row_count == 0 || key->row_count > kRowsMax || most > key->row_count) {
    throw Fail(Code::kDataLoss, "{} rows and {} candidates of {}", key->rows, key->candidates,
               key->row_count);
  }
  // The sizes of their tensors must not overflow.
  constexpr uint64_t kElementsMax = uint64_t{1} << 58;
  const auto elements = std::max<uint64_t>(2, static_cast<uint64_t>(key->shape.size()));
  if (most > kElementsMax / elements) {
    throw Fail(Code::kDataLoss, "{} rows of {} elements", most, elements);
  }
  if (key->chunk_elements != 0) throw Fail(Code::kDataLoss, "rows in chunks of elements");
  if (key->updates.empty() || key->updates.size() > kBucketsMax) {
    throw Fail(Code::kDataLoss, "{} buckets", key->updates.size());
  }
}

SavedKey KeyOf(const json::object& entry, const std::vector<SavedProgram>& programs) {
  SavedKey key;
  const json::value& name = Field(entry, "key");
  if (name.is_string()) {
    key.key = Key(KeyView(std::string_view(name.get_string())));
    CheckName(key);
  } else if (name.is_int64()) {
    key.key = Key(KeyView(name.get_int64()));
  } else {
    throw Fail(Code::kDataLoss, "'key' is no key");
  }
  if (entry.contains("store")) {
    const uint64_t store = NumberOf(Field(entry, "store"), "store");
    if (store > UINT32_MAX) throw Fail(Code::kDataLoss, "there is no store {}", store);
    key.store = static_cast<uint32_t>(store);
  }
  const auto dtype = DTypeFromName(TextOf(Field(entry, "dtype"), "dtype"));
  if (!dtype) throw Fail(Code::kDataLoss, "there is no such dtype");
  key.dtype = *dtype;
  std::vector<int64_t> dims;
  for (const json::value& dim : ArrayOf(Field(entry, "shape"), "shape")) {
    dims.push_back(static_cast<int64_t>(NumberOf(dim, "shape")));
  }
  key.shape = Shape(dims);
  key.is_async = TextOf(Field(entry, "mode"), "mode") == "async";
  if (entry.contains("deterministic")) {
    key.deterministic = BoolOf(Field(entry, "deterministic"), "deterministic");
  }
  if (entry.contains("staleness")) {
    const uint64_t staleness = NumberOf(Field(entry, "staleness"), "staleness");
    if (staleness > INT32_MAX) throw Fail(Code::kDataLoss, "a staleness of {} rounds", staleness);
    key.staleness = static_cast<uint32_t>(staleness);
  }
  key.round = NumberOf(Field(entry, "round"), "round");
  if (entry.contains("step")) {
    const uint64_t step = NumberOf(Field(entry, "step"), "step");
    if (step > UINT32_MAX) throw Fail(Code::kDataLoss, "a step of number {}", step);
    key.step = static_cast<uint32_t>(step);
  }
  key.chunk_elements = NumberOf(Field(entry, "chunk_elements"), "chunk_elements");
  key.updates.clear();
  for (const json::value& count : ArrayOf(Field(entry, "updates"), "updates")) {
    key.updates.push_back(NumberOf(count, "updates"));
  }
  const auto elements = static_cast<uint64_t>(key.shape.size());
  const uint64_t chunks =
      key.chunk_elements == 0
          ? 1
          : std::max<uint64_t>(
                1, (elements + key.chunk_elements - 1) / std::max<uint64_t>(1, key.chunk_elements));
  AddLayout(entry, &key);
  if (!key.by_rows && key.updates.size() != chunks) {
    throw Fail(Code::kDataLoss, "{} counts of updates, {} chunks", key.updates.size(), chunks);
  }
  const auto read_program = [&](const char* field, SavedProgram* program) {
    if (!entry.contains(field)) return;
    const uint64_t number = NumberOf(Field(entry, field), field);
    if (number >= programs.size()) throw Fail(Code::kDataLoss, "there is no program {}", number);
    *program = programs[number];
  };
  read_program("program", &key.program);
  read_program("own_program", &key.own);
  key.has_value = BoolOf(Field(entry, "value"), "value");
  key.has_master = BoolOf(Field(entry, "master"), "master");
  key.arrays = TextsOf(entry, "arrays");
  key.scalars = TextsOf(entry, "scalars");
  return key;
}

// Gives the tensors the files that an index names.  The index decides which tensors begin a file.
void PlaceInFiles(const std::vector<size_t>& file_of, size_t files, Layout* layout) {
  uint64_t at = 0;
  size_t last = 0;
  for (size_t i = 0; i < layout->items.size(); ++i) {
    Item& item = layout->items[i];
    if (file_of[i] != last && file_of[i] != last + 1) {
      throw Fail(Code::kDataLoss, "part {} in file {}", i, file_of[i]);
    }
    if (file_of[i] != last) at = 0;
    last = item.file = file_of[i];
    const uint64_t bytes = item.tensor.bytes();
    item.tensor.begin = at;
    item.tensor.end = at += bytes;
  }
  layout->files = files;
  if (files == 0 || (!layout->items.empty() && last + 1 != files)) {
    throw Fail(Code::kDataLoss, "{} files", files);
  }
}

}  // namespace

void CheckName(const SavedKey& key) {
  const char* const why = key.key.is_string() ? WhyNoKey(key.key.text()) : nullptr;
  if (why != nullptr) throw Fail(Code::kDataLoss, "the key {} {}", key.key.view().ToString(), why);
}

std::string TextOfIndex(const Index& made, const std::function<std::string(size_t file)>& name_of) {
  const auto& [keys, layout, checks, header_checks] = made;
  json::object index;
  index["check"] = kNoCheck;
  const bool has_rows =
      std::any_of(keys.begin(), keys.end(), [](const SavedKey& key) { return key.by_rows; });
  index["format"] = AreOfSeveralStores(keys) ? kStoresFormat : has_rows ? kRowsFormat : kFormat;
  json::array files;
  for (size_t f = 0; f < layout.files; ++f) {
    files.push_back(json::object{{"name", name_of(f)}, {"check", header_checks[f]}});
  }
  index["files"] = std::move(files);
  std::vector<SavedProgram> programs;
  json::array entries;
  size_t item = 0;
  for (size_t k = 0; k < keys.size(); ++k) {
    const SavedKey& key = keys[k];
    json::object entry;
    if (key.key.is_string()) {
      entry["key"] = key.key.text();
    } else {
      entry["key"] = key.key.number();
    }
    if (key.store > 0) entry["store"] = key.store;
    entry["dtype"] = Name(key.dtype);
    entry["shape"] = json::array(key.shape.begin(), key.shape.end());
    entry["mode"] = key.is_async ? "async" : "sync";
    if (key.deterministic) entry["deterministic"] = true;
    if (key.staleness > 0) entry["staleness"] = key.staleness;
    entry["round"] = key.round;
    if (key.step > 0) entry["step"] = key.step;
    entry["chunk_elements"] = key.chunk_elements;
    entry["updates"] = json::array(key.updates.begin(), key.updates.end());
    const auto add_program = [&](const char* name, const SavedProgram& program) {
      if (program.text.empty()) return;
      auto known = std::find(programs.begin(), programs.end(), program);
      if (known == programs.end()) known = programs.insert(known, program);
      entry[name] = known - programs.begin();
    };
    add_program("program", key.program);
    add_program("own_program", key.own);
    entry["value"] = key.has_value;
    entry["master"] = key.has_master;
    if (key.by_rows) {
      entry["layout"] = "rows";
      entry["rows"] = key.rows;
      entry["row_count"] = key.row_count;
      entry["initializer"] = EntryOf(key.initializer);
      entry["row_version"] = key.row_version;
      if (key.policy != RowPolicy{}) entry["policy"] = EntryOf(key.policy);
      if (key.candidates > 0) entry["candidates"] = key.candidates;
    }
    if (key.is_of_updater) entry["layout"] = "updater";
    entry["arrays"] = TextsOf(key.arrays);
    entry["scalars"] = TextsOf(key.scalars);
    json::array parts;
    for (; item < layout.items.size() && layout.items[item].key == k; ++item) {
      parts.push_back(json::object{{"tensor", layout.items[item].tensor.name},
                                   {"file", layout.items[item].file},
                                   {"check", checks[item]}});
    }
    entry["parts"] = std::move(parts);
    entries.push_back(std::move(entry));
  }
  json::array texts;
  for (const SavedProgram& program : programs) {
    json::array params;
    for (const double param : program.params) params.emplace_back(TextOfDouble(param));
    json::object text{{"text", program.text},
                      {"multi_precision", program.multi_precision},
                      {"params", std::move(params)}};
    if (!program.lazy) text["lazy"] = false;
    texts.push_back(std::move(text));
  }
  index["programs"] = std::move(texts);
  index["keys"] = std::move(entries);
  return json::serialize(index);
}

Index ParseIndex(const std::string& text, const std::string& name) {
  const json::object index = ParseObject(text, name);
  Index read;
  try {
    const uint64_t format = NumberOf(Field(index, "format"), "format");
    if (format < kFormat || format > kStoresFormat) {
      throw Fail(Code::kFailedPrecondition, "{}: format {}, this build reads {} to {}", name,
                 format, kFormat, kStoresFormat);
    }
    std::vector<SavedProgram> programs;
    for (const json::value& program : ArrayOf(Field(index, "programs"), "programs")) {
      programs.push_back(ProgramOf(ObjectOf(program, "programs")));
    }
    for (const json::value& file : ArrayOf(Field(index, "files"), "files")) {
      read.header_checks.push_back(TextOf(Field(ObjectOf(file, "files"), "check"), "check"));
    }
    std::vector<size_t> file_of;
    for (const json::value& value : ArrayOf(Field(index, "keys"), "keys")) {
      const json::object& entry = ObjectOf(value, "keys");
      read.keys.push_back(KeyOf(entry, programs));
      for (const json::value& part : ArrayOf(Field(entry, "parts"), "parts")) {
        const json::object& fields = ObjectOf(part, "parts");
        read.checks.push_back(TextOf(Field(fields, "check"), "check"));
        file_of.push_back(NumberOf(Field(fields, "file"), "file"));
      }
    }
    read.layout = LayoutOf(read.keys, UINT64_MAX);
    if (read.layout.items.size() != read.checks.size()) {
      throw Fail(Code::kDataLoss, "{} parts, the keys have {}", read.checks.size(),
                 read.layout.items.size());
    }
    PlaceInFiles(file_of, read.header_checks.size(), &read.layout);
  } catch (const Error& error) {
    if (error.code() == Code::kFailedPrecondition) throw;
    throw Fail(Code::kDataLoss, "{}: {}", name, error.what());
  }
  return read;
}

namespace {

// Returns true for an index that has only what other programs write.  A damaged one has more.
bool IsOfAnotherProgram(const std::string& text, const std::string& file) {
  if (text.starts_with("{\"check\"")) return false;  // a large one is parsed once
  try {
    const json::object index = ParseObject(text, file);
    return index.contains("weight_map") && std::ranges::all_of(index, [](const auto& field) {
             return field.key() == "weight_map" || field.key() == "metadata";
           });
  } catch (const Error& error) {
    static_cast<void>(error);
    return false;
  }
}

}  // namespace

Index IndexOf(const std::string& text, const std::string& file) {
  if (IsOfAnotherProgram(text, file)) {
    throw Fail(Code::kFailedPrecondition,
               "{}: another program has saved these tensors, without what a store keeps of its "
               "keys; safetensors reads them, and init takes them",
               file);
  }
  CheckSeal(text, file);
  return ParseIndex(text, file);
}

}  // namespace tkv::checkpoint
