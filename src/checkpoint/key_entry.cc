#include "checkpoint/key_entry.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/format.h"

namespace tkv::checkpoint {
namespace {

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

// Returns a field that entries may lack.
//   absent  its value then
uint64_t NumberOr(uint64_t absent, uint64_t most, const json::object& entry, const char* name) {
  const json::value* const field = entry.if_contains(name);
  if (field == nullptr) return absent;
  const uint64_t number = NumberOf(*field, name);
  if (number > most) throw Fail(Code::kDataLoss, "'{}' is {}, at most {}", name, number, most);
  return number;
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
  key->row_version = NumberOr(key->row_version, UINT64_MAX, entry, "row_version");
  if (entry.contains("policy")) {
    key->policy = PolicyOf(ObjectOf(Field(entry, "policy"), "policy"));
  }
  key->candidates = NumberOr(0, UINT64_MAX, entry, "candidates");
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

Key NameOf(const json::object& entry) {
  const json::value& name = Field(entry, "key");
  if (name.is_string()) return Key(KeyView(std::string_view(name.get_string())));
  if (name.is_int64()) return Key(KeyView(name.get_int64()));
  throw Fail(Code::kDataLoss, "'key' is no key");
}

DType DTypeOf(const json::object& entry) {
  const auto dtype = DTypeFromName(TextOf(Field(entry, "dtype"), "dtype"));
  if (!dtype) throw Fail(Code::kDataLoss, "there is no such dtype");
  return *dtype;
}

Shape ShapeOf(const json::object& entry) {
  std::vector<int64_t> dims;
  for (const json::value& dim : ArrayOf(Field(entry, "shape"), "shape")) {
    dims.push_back(static_cast<int64_t>(NumberOf(dim, "shape")));
  }
  return Shape(dims);
}

void CheckUpdates(const SavedKey& key) {
  if (key.by_rows) return;
  const auto elements = static_cast<uint64_t>(key.shape.size());
  const uint64_t size = key.chunk_elements;
  const uint64_t chunks = size == 0 ? 1 : std::max<uint64_t>(1, (elements + size - 1) / size);
  if (key.updates.size() != chunks) {
    throw Fail(Code::kDataLoss, "{} counts of updates, {} chunks", key.updates.size(), chunks);
  }
}

SavedProgram ProgramFor(const json::object& entry, const char* name,
                        const std::vector<SavedProgram>& programs) {
  if (!entry.contains(name)) return {};
  const uint64_t number = NumberOf(Field(entry, name), name);
  if (number >= programs.size()) throw Fail(Code::kDataLoss, "there is no program {}", number);
  return programs[number];
}

// Adds the fields of a table.
void AddTable(const SavedKey& key, json::object* entry) {
  (*entry)["layout"] = "rows";
  (*entry)["rows"] = key.rows;
  (*entry)["row_count"] = key.row_count;
  (*entry)["initializer"] = EntryOf(key.initializer);
  (*entry)["row_version"] = key.row_version;
  if (key.policy != RowPolicy{}) (*entry)["policy"] = EntryOf(key.policy);
  if (key.candidates > 0) (*entry)["candidates"] = key.candidates;
}

}  // namespace

json::object EntryOf(const SavedKey& key, std::vector<SavedProgram>* programs) {
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
    auto known = std::ranges::find(*programs, program);
    if (known == programs->end()) known = programs->insert(known, program);
    entry[name] = known - programs->begin();
  };
  add_program("program", key.program);
  add_program("own_program", key.own);
  entry["value"] = key.has_value;
  entry["master"] = key.has_master;
  if (key.by_rows) AddTable(key, &entry);
  if (key.is_of_updater) entry["layout"] = "updater";
  entry["arrays"] = TextsOf(key.arrays);
  entry["scalars"] = TextsOf(key.scalars);
  return entry;
}

SavedKey KeyOf(const json::object& entry, const std::vector<SavedProgram>& programs) {
  SavedKey key;
  key.key = NameOf(entry);
  CheckName(key);
  key.store = static_cast<uint32_t>(NumberOr(0, UINT32_MAX, entry, "store"));
  key.dtype = DTypeOf(entry);
  key.shape = ShapeOf(entry);
  key.is_async = TextOf(Field(entry, "mode"), "mode") == "async";
  if (entry.contains("deterministic")) {
    key.deterministic = BoolOf(Field(entry, "deterministic"), "deterministic");
  }
  key.staleness = static_cast<uint32_t>(NumberOr(0, INT32_MAX, entry, "staleness"));
  key.round = NumberOf(Field(entry, "round"), "round");
  key.step = static_cast<uint32_t>(NumberOr(0, UINT32_MAX, entry, "step"));
  key.chunk_elements = NumberOf(Field(entry, "chunk_elements"), "chunk_elements");
  key.updates.clear();
  for (const json::value& count : ArrayOf(Field(entry, "updates"), "updates")) {
    key.updates.push_back(NumberOf(count, "updates"));
  }
  AddLayout(entry, &key);
  CheckUpdates(key);
  key.program = ProgramFor(entry, "program", programs);
  key.own = ProgramFor(entry, "own_program", programs);
  key.has_value = BoolOf(Field(entry, "value"), "value");
  key.has_master = BoolOf(Field(entry, "master"), "master");
  key.arrays = TextsOf(entry, "arrays");
  key.scalars = TextsOf(entry, "scalars");
  return key;
}

json::object EntryOf(const SavedProgram& program) {
  json::array params;
  for (const double param : program.params) params.emplace_back(TextOfDouble(param));
  json::object entry{{"text", program.text},
                     {"multi_precision", program.multi_precision},
                     {"params", std::move(params)}};
  if (!program.lazy) entry["lazy"] = false;
  return entry;
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

}  // namespace tkv::checkpoint
