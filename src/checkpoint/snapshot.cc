#include "checkpoint/snapshot.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <cmath>
#include <cstring>
#include <set>

#include "base/format.h"
#include "base/key_text.h"
#include "base/mix.h"
#include "checkpoint/json.h"

namespace tkv::checkpoint {
namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr uint64_t kIndexBytesMax = uint64_t{1} << 30;  // about two million keys
constexpr uint64_t kFormat = 1;
constexpr uint64_t kRowsFormat = 2;    // if there are keys by rows
constexpr uint64_t kStoresFormat = 3;  // if there are keys of several stores
constexpr size_t kBucketsMax = size_t{1024} * 16;
constexpr size_t kCheckDigits = 32;
const std::string kNoCheck(kCheckDigits, '0');

std::string DigitsOf(const XXH128_hash_t& hash) {
  return Format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string CheckOf(std::span<const std::byte> bytes) {
  return DigitsOf(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string CheckOf(const std::string& text) {
  return CheckOf(std::as_bytes(std::span(text.data(), text.size())));
}

// Returns the position of the digits in the text's first field "check"; npos if there is none.
size_t PlaceOfCheck(const std::string& text) {
  const size_t name = text.find("check");
  if (name == std::string::npos) return name;
  const size_t digits = text.find_first_of("0123456789abcdef", name + 5);
  const bool fits = digits != std::string::npos && digits + kCheckDigits <= text.size();
  return fits ? digits : std::string::npos;
}

// Fills in the checksum of a text.  The checksum covers the text with zeros in its own place.
void Seal(std::string* text) {
  text->replace(PlaceOfCheck(*text), kCheckDigits, kNoCheck);
  text->replace(PlaceOfCheck(*text), kCheckDigits, CheckOf(*text));
}

void CheckSeal(const std::string& text, const std::string& file) {
  const size_t place = PlaceOfCheck(text);
  if (place == std::string::npos) {
    throw Fail(Code::kDataLoss, "{}: this is no index of a snapshot", file);
  }
  std::string sealed = text;
  Seal(&sealed);
  if (sealed != text) throw Fail(Code::kDataLoss, "{}: the check does not match", file);
}

std::string ReadAll(const std::string& path) {
  const File file = File::Open(path);
  const uint64_t size = file.Size();
  if (size > kIndexBytesMax) {
    throw Fail(Code::kDataLoss, "{}: {} bytes, an index has at most {}", path, size,
               kIndexBytesMax);
  }
  std::string text(size, '\0');
  file.ReadAt(0, std::as_writable_bytes(std::span(text)));
  return text;
}

// ---- keys ---------------------------------------------------------------------------------------

uint64_t PartCount(const SavedKey& key) {
  return kStateParts + key.arrays.size() + key.scalars.size();
}

bool HasPart(const SavedKey& key, uint64_t part) {
  if (part == kIdsPart) return key.by_rows;
  if (part == kNotesPart) return key.by_rows && key.policy.has_notes;
  if (IsOfRowsAlone(part)) return key.by_rows && key.candidates > 0;
  if (part == kValuePart) return key.has_value;
  return part == kMasterPart ? key.has_master : part < PartCount(key);
}

// Returns the tensor of a part; its begin is 0.
Tensor TensorOf(const SavedKey& key, uint64_t part) {
  Tensor tensor;
  const std::string name = key.key.is_string() ? key.key.text() : Format("{}", key.key.number());
  if (IsOfRowsAlone(part)) {
    tensor.name = name + (part == kIdsPart          ? "#ids"
                          : part == kNotesPart      ? "#notes"
                          : part == kCandidatesPart ? "#candidates"
                                                    : "#candidate_notes");
    tensor.dtype = DType::kI64;
    tensor.shape = {static_cast<int64_t>(RowsOf(key, part))};
    const bool is_noted = part == kNotesPart || part == kCandidateNotesPart;
    if (is_noted) tensor.shape.push_back(2);  // version, count
    tensor.end = RowsOf(key, part) * sizeof(int64_t) * (is_noted ? 2 : 1);
    return tensor;
  }
  const uint64_t state = part - kStateParts;
  const bool is_scalar = part >= kStateParts && state >= key.arrays.size();
  tensor.dtype = is_scalar ? DType::kF64 : part == kValuePart ? key.dtype : ComputeType(key.dtype);
  if (part == kValuePart) {
    tensor.name = name;
  } else if (part == kMasterPart) {
    tensor.name = name + "#master";
  } else {
    tensor.name = Format("{}#{}", name,
                         is_scalar ? key.scalars[state - key.arrays.size()] : key.arrays[state]);
  }
  uint64_t elements = 1;
  if (is_scalar) {
    elements = key.updates.size();
    tensor.shape = {static_cast<int64_t>(elements)};
  } else {
    elements = static_cast<uint64_t>(key.shape.size());
    if (key.by_rows) {
      tensor.shape.push_back(static_cast<int64_t>(key.rows));
      elements *= key.rows;
    }
    for (const int64_t dim : key.shape) tensor.shape.push_back(dim);
  }
  tensor.end = elements * ItemSize(tensor.dtype);
  return tensor;
}

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
  }
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
  return {{"admit", policy.admit_count}, {"age", policy.age_max},
          {"rows", policy.rows_max},     {"score", Name(policy.score)},
          {"notes", policy.has_notes},   {"memory", policy.memory_max}};
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

bool IsOfSeveralStores(const std::vector<SavedKey>& keys) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](const SavedKey& key) { return key.store != keys[0].store; });
}

std::string IndexOf(const std::vector<SavedKey>& keys, const Layout& layout,
                    const std::vector<std::string>& checks,
                    const std::vector<std::string>& header_checks,
                    const std::function<std::string(size_t)>& name_of) {
  json::object index;
  index["check"] = kNoCheck;
  const bool has_rows =
      std::any_of(keys.begin(), keys.end(), [](const SavedKey& key) { return key.by_rows; });
  index["format"] = IsOfSeveralStores(keys) ? kStoresFormat : has_rows ? kRowsFormat : kFormat;
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

// Refuses a name that this build could not read again, both when writing and when reading a
// snapshot of another build.
//   throws  kDataLoss
void CheckName(const SavedKey& key) {
  const char* const why = key.key.is_string() ? WhyNoKey(key.key.text()) : nullptr;
  if (why != nullptr) throw Fail(Code::kDataLoss, "the key {} {}", key.key.view().ToString(), why);
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

// ---- names --------------------------------------------------------------------------------------

std::string NameOfNumber(uint64_t number) { return Format("{:06}", number); }

// Returns the number of a snapshot with this name; none if no snapshot has such a name.
std::optional<uint64_t> NumberOfName(std::string_view name) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool is_ours = error == std::errc() && number < UINT64_MAX && name == NameOfNumber(number);
  return is_ours ? std::optional(number) : std::nullopt;
}

std::string IndexIn(const std::string& folder) { return Format("{}/{}", folder, kIndexName); }

// Returns the snapshots of a folder, the oldest first.  Folders of others may have such names; only
// a snapshot has an index.
std::vector<uint64_t> NumbersIn(const std::string& folder) {
  std::vector<uint64_t> numbers;
  for (const std::string& name : Names(folder)) {
    const auto number = NumberOfName(name);
    if (number && Exists(IndexIn(Format("{}/{}", folder, name)))) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::string NewNameIn(const std::string& folder) {
  const std::vector<uint64_t> numbers = NumbersIn(folder);
  uint64_t number = numbers.empty() ? 1 : numbers.back() + 1;
  while (Exists(Format("{}/{}", folder, NameOfNumber(number)))) ++number;
  return NameOfNumber(number);
}

// Returns the temporary name under which a snapshot is built, and to which an old one is renamed
// before it is removed.
std::string NameMeanwhile(const std::string& name) { return Format(".{}.tmp", name); }

bool IsLeftOver(std::string_view name) {
  if (!name.starts_with('.') || !name.ends_with(".tmp") || name.size() < 5) return false;
  return NumberOfName(name.substr(1, name.size() - 5)).has_value();
}

// Returns true if a Writer made the folder's index; other tools use the same file name.
bool IsOurs(const std::string& folder) {
  try {
    const std::string index = IndexIn(folder);
    CheckSeal(ReadAll(index), index);
    return true;
  } catch (const Error& error) {
    if (error.code() != Code::kDataLoss) throw;
    return false;
  }
}

// Removes all snapshots of a folder except the newest ones.
void Prune(const std::string& folder) {
  std::vector<uint64_t> numbers = NumbersIn(folder);
  // A snapshot is renamed first, so that a half-removed folder never counts as one.
  for (size_t i = 0; i + Writer::kKept < numbers.size(); ++i) {
    const std::string name = NameOfNumber(numbers[i]);
    const std::string old = Format("{}/{}", folder, name);
    if (!IsOurs(old)) continue;
    const std::string gone = Format("{}/{}", folder, NameMeanwhile(name));
    Rename(old, gone);
    RemoveAll(gone);
  }
}

}  // namespace

uint64_t RowsOf(const SavedKey& key, uint64_t part) {
  if (!key.by_rows) return 0;
  if (part == kCandidatesPart || part == kCandidateNotesPart) return key.candidates;
  const bool is_scalar = !IsOfRowsAlone(part) && part >= kStateParts + key.arrays.size();
  return is_scalar ? 0 : key.rows;
}

Layout LayoutOf(const std::vector<SavedKey>& keys, uint64_t file_bytes_max) {
  Layout layout;
  std::set<std::string> names = {"__metadata__"};
  const bool has_stores = IsOfSeveralStores(keys);
  uint64_t at = 0;
  for (size_t k = 0; k < keys.size(); ++k) {
    std::vector<uint64_t> parts = {kIdsPart, kNotesPart};
    for (uint64_t part = 0; part < PartCount(keys[k]); ++part) parts.push_back(part);
    parts.insert(parts.end(), {kCandidatesPart, kCandidateNotesPart});
    for (const uint64_t part : parts) {
      if (!HasPart(keys[k], part)) continue;
      Item item{k, part, 0, TensorOf(keys[k], part)};
      if (has_stores && keys[k].store > 0) {
        item.tensor.name = Format("store-{}/{}", keys[k].store, item.tensor.name);
      }
      while (!names.insert(item.tensor.name).second) item.tensor.name += '#';
      const uint64_t bytes = item.tensor.bytes();
      const bool is_full = at > 0 && at + bytes > file_bytes_max;
      if (layout.files == 0 || is_full) {
        ++layout.files;
        at = 0;
      }
      item.file = layout.files - 1;
      item.tensor.begin = at;
      item.tensor.end = at += bytes;
      layout.items.push_back(std::move(item));
    }
  }
  if (layout.files == 0) layout.files = 1;
  return layout;
}

// ---- writing ------------------------------------------------------------------------------------

namespace {

std::vector<Tensor> TensorsOf(const Layout& layout, size_t file) {
  std::vector<Tensor> tensors;
  for (const Item& item : layout.items) {
    if (item.file == file) tensors.push_back(item.tensor);
  }
  return tensors;
}

std::string FileName(size_t file, size_t count) {
  return Format("model-{:05}-of-{:05}.safetensors", file + 1, count);
}

}  // namespace

struct Checksum::State {
  State() { XXH3_128bits_reset(&hash); }
  XXH3_state_t hash;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {}

Checksum::~Checksum() = default;

void Checksum::Add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->hash, bytes.data(), bytes.size());
}

std::string Checksum::Digits() const { return DigitsOf(XXH3_128bits_digest(&state_->hash)); }

std::string Writer::NameOf(size_t file) const { return FileName(file, layout_.files); }

Writer Writer::Folder(const std::string& path, std::vector<SavedKey> keys,
                      uint64_t file_bytes_max) {
  std::ranges::for_each(keys, CheckName);
  Writer writer;
  writer.is_folder_ = true;
  writer.keys_ = std::move(keys);
  writer.layout_ = LayoutOf(writer.keys_, file_bytes_max);
  MakeFolder(path);
  writer.lock_ = std::make_unique<FolderLock>(path);
  for (const std::string& name : Names(path)) {  // left by savers that ended before their commit
    if (IsLeftOver(name)) RemoveAll(Format("{}/{}", path, name));
  }
  const std::string name = NewNameIn(path);
  writer.parent_ = path;
  writer.path_ = Format("{}/{}", path, name);
  const std::string target = Format("{}/{}", path, NameMeanwhile(name));
  MakeFolder(target);
  writer.target_ = target;  // from here on the destructor removes it
  writer.BeginFile(0);
  return writer;
}

Writer Writer::SingleFile(const std::string& path, std::vector<SavedKey> keys) {
  static std::atomic<uint64_t> count = 0;
  std::ranges::for_each(keys, CheckName);
  Writer writer;
  writer.keys_ = std::move(keys);
  writer.layout_ = LayoutOf(writer.keys_, UINT64_MAX);
  writer.path_ = path;
  writer.parent_ = FolderOf(path);
  CheckFolderOf(path);
  const std::string name = path.substr(path.find_last_of('/') + 1);
  while (!writer.file_) {  // a killed process with this pid may have left such a file
    const std::string target = Format("{}/.{}.{}-{}.tmp", writer.parent_, name, getpid(), ++count);
    try {
      writer.file_ = File::Create(target, path);
      writer.target_ = target;
    } catch (const Error& error) {
      if (error.code() != Code::kAlreadyExists) throw;
    }
  }
  writer.BeginFile(0);
  return writer;
}

Writer::~Writer() {
  if (is_committed_ || target_.empty()) return;
  file_.reset();
  try {
    RemoveAll(target_);
  } catch (const std::exception& error) {
    // The next save removes remains in a folder of snapshots.  Remains of a single file stay.
    static_cast<void>(error);
  }
}

uint64_t Writer::bytes() const {
  uint64_t bytes = 0;
  for (const Item& item : layout_.items) bytes += item.tensor.bytes();
  return bytes;
}

void Writer::BeginFile(size_t file) {
  std::map<std::string, std::string> metadata;
  if (is_folder_) {
    file_ = File::Create(Format("{}/{}", target_, NameOf(file)));
  } else {  // the final index except for the checksums
    const std::vector<std::string> no_checks(layout_.items.size(), kNoCheck);
    metadata["tensorkv"] =
        IndexOf(keys_, layout_, no_checks, {kNoCheck}, [](size_t) { return std::string(); });
  }
  const std::string header = HeaderOf(TensorsOf(layout_, file), metadata);
  header_checks_.push_back(is_folder_ ? CheckOf(header) : kNoCheck);
  file_->Write(std::as_bytes(std::span(header.data(), header.size())));
}

void Writer::EndFile() {
  file_->Sync();
  file_->Close();
  file_.reset();
}

void Writer::Write(std::span<const std::byte> bytes) {
  const Item& item = layout_.items.at(checks_.size());
  if (bytes.size() > item.tensor.bytes() - written_) {
    throw Fail(Code::kInternal, "tensor '{}' has {} bytes, {} are written", item.tensor.name,
               item.tensor.bytes(), written_ + bytes.size());
  }
  if (item.file >= header_checks_.size()) {
    EndFile();
    BeginFile(item.file);
  }
  file_->Write(bytes);
  if (written_ == 0 && bytes.size() == item.tensor.bytes()) {
    checks_.push_back(CheckOf(bytes));
    return;
  }
  if (check_ == nullptr) check_ = std::make_shared<Checksum>();
  check_->Add(bytes);
  written_ += bytes.size();
  if (written_ < item.tensor.bytes()) return;
  checks_.push_back(check_->Digits());
  check_ = nullptr;
  written_ = 0;
}

std::string Writer::Commit() {
  if (checks_.size() != layout_.items.size()) {
    throw Fail(Code::kInternal, "{} of {} tensors are written", checks_.size(),
               layout_.items.size());
  }
  if (is_folder_) {
    EndFile();
    json::object index;
    json::object files;
    for (const Item& item : layout_.items) files[item.tensor.name] = NameOf(item.file);
    std::string text =
        IndexOf(keys_, layout_, checks_, header_checks_, [&](size_t file) { return NameOf(file); });
    // The fields for other readers follow; the check has to be the first field.
    text.pop_back();
    text += Format(R"(,"metadata":{{"total_size":{}}},"weight_map":{}}})", bytes(),
                   std::string(json::serialize(files)));
    Seal(&text);
    if (text.size() > kIndexBytesMax) {
      throw Fail(Code::kResourceExhausted, "{}: {} keys need an index of {} bytes, at most {}",
                 path_, keys_.size(), text.size(), kIndexBytesMax);
    }
    File file = File::Create(IndexIn(target_));
    file.Write(std::as_bytes(std::span(text.data(), text.size())));
    file.Sync();
    file.Close();
    SyncFolder(target_);
  } else {
    std::string header = HeaderOf(TensorsOf(layout_, 0),
                                  {{"tensorkv", IndexOf(keys_, layout_, checks_, {kNoCheck},
                                                        [](size_t) { return std::string(); })}});
    Seal(&header);
    file_->WriteAt(0, std::as_bytes(std::span(header.data(), header.size())));
    EndFile();
  }
  Rename(target_, path_);
  is_committed_ = true;
  SyncFolder(parent_);
  if (!is_folder_) return path_;
  try {
    Prune(parent_);
  } catch (const Error& error) {
    static_cast<void>(error);  // the next save tries again
  }
  return path_;
}

// ---- reading ------------------------------------------------------------------------------------

namespace {

// Returns the number N of a path that ends in "/store-N".
std::optional<uint32_t> StoreNamedBy(const std::string& path) {
  constexpr std::string_view kPrefix = "/store-";
  const size_t place = path.rfind(kPrefix);
  if (place == std::string::npos) return std::nullopt;
  const std::string_view digits = std::string_view(path).substr(place + kPrefix.size());
  uint32_t store = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), store);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  return is_number ? std::optional(store) : std::nullopt;
}

}  // namespace

Reader::Reader(const std::string& path) {
  CheckPath(path);
  const auto store = Exists(path) ? std::nullopt : StoreNamedBy(path);
  Open(store ? path.substr(0, path.rfind('/')) : path);
  if (!store) return;
  TakeStore(*store);
  if (stores() != std::vector{*store}) {
    throw Fail(Code::kNotFound, "{}: there are no keys of store {}", path_, *store);
  }
  is_of_named_store_ = true;
}

std::vector<uint32_t> Reader::stores() const {
  std::set<uint32_t> stores;
  for (const SavedKey& key : keys_) stores.insert(key.store);
  return {stores.begin(), stores.end()};
}

void Reader::TakeStore(uint32_t store) {
  if (is_of_named_store_ || !IsOfSeveralStores(keys_)) return;
  std::vector<SavedKey> keys;
  std::vector<size_t> places(keys_.size());  // new positions of the keys that stay
  for (size_t k = 0; k < keys_.size(); ++k) {
    places[k] = keys.size();
    if (keys_[k].store == store) keys.push_back(keys_[k]);
  }
  if (keys.empty()) throw Fail(Code::kNotFound, "{}: there are no keys of store {}", path_, store);
  std::vector<Item> items;
  std::vector<std::string> checks;
  for (size_t i = 0; i < layout_.items.size(); ++i) {
    if (keys_[layout_.items[i].key].store != store) continue;
    items.push_back(std::move(layout_.items[i]));
    items.back().key = places[items.back().key];
    checks.push_back(std::move(checks_[i]));
  }
  keys_ = std::move(keys);
  layout_.items = std::move(items);
  checks_ = std::move(checks);
}

void Reader::Open(const std::string& path) {
  if (!Exists(path)) throw Fail(Code::kNotFound, "{}: there is no snapshot", path);
  if (!IsFolder(path)) {
    OpenFile(path);
  } else if (Exists(IndexIn(path))) {
    OpenFolder(path);
  } else {
    const std::vector<uint64_t> numbers = NumbersIn(path);
    if (numbers.empty()) throw Fail(Code::kNotFound, "{}: there is no snapshot", path);
    OpenFolder(Format("{}/{}", path, NameOfNumber(numbers.back())));
  }
}

void Reader::OpenFolder(const std::string& folder) {
  path_ = folder;
  const std::string index = IndexIn(folder);
  const std::string text = ReadAll(index);
  CheckSeal(text, index);
  Parse(text, index);
  for (size_t f = 0; f < layout_.files; ++f) {
    const std::string name = Format("{}/{}", folder, FileName(f, layout_.files));
    if (!Exists(name)) throw Fail(Code::kDataLoss, "{}: the file is missing", name);
    files_.push_back(File::Open(name));
    // The index determines every byte of the header.
    const std::string header = HeaderOf(TensorsOf(layout_, f), {});
    std::string found(header.size(), '\0');
    files_[f].ReadAt(0, std::as_writable_bytes(std::span(found)));
    uint64_t data = 0;
    for (const Item& item : layout_.items) {
      if (item.file == f) data += item.tensor.bytes();
    }
    if (found != header || CheckOf(header) != header_checks_[f] ||
        files_[f].Size() != header.size() + data) {
      throw Fail(Code::kDataLoss, "{}: this is not the file that the index names", name);
    }
    data_begins_.push_back(header.size());
  }
}

void Reader::OpenFile(const std::string& path) {
  path_ = path;
  files_.push_back(File::Open(path));
  const Header header = ReadHeader(files_[0]);
  const auto index = header.metadata.find("tensorkv");
  if (index == header.metadata.end()) {
    throw Fail(Code::kFailedPrecondition, "{}: no states were saved there by a store", path);
  }
  std::string bytes(header.data_begin, '\0');
  files_[0].ReadAt(0, std::as_writable_bytes(std::span(bytes)));
  CheckSeal(bytes, path);
  Parse(index->second, path);
  data_begins_.push_back(header.data_begin);
  const std::string expected = HeaderOf(TensorsOf(layout_, 0), {{"tensorkv", index->second}});
  if (expected != bytes) {
    throw Fail(Code::kDataLoss, "{}: the tensors are not those that the index names", path);
  }
}

void Reader::Parse(const std::string& text, const std::string& name) {
  const json::object index = ParseObject(text, name);
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
      header_checks_.push_back(TextOf(Field(ObjectOf(file, "files"), "check"), "check"));
    }
    std::vector<size_t> file_of;
    for (const json::value& value : ArrayOf(Field(index, "keys"), "keys")) {
      const json::object& entry = ObjectOf(value, "keys");
      keys_.push_back(KeyOf(entry, programs));
      for (const json::value& part : ArrayOf(Field(entry, "parts"), "parts")) {
        const json::object& fields = ObjectOf(part, "parts");
        checks_.push_back(TextOf(Field(fields, "check"), "check"));
        file_of.push_back(NumberOf(Field(fields, "file"), "file"));
      }
    }
    layout_ = LayoutOf(keys_, UINT64_MAX);
    if (layout_.items.size() != checks_.size()) {
      throw Fail(Code::kDataLoss, "{} parts, the keys have {}", checks_.size(),
                 layout_.items.size());
    }
    // The index decides which tensors begin a new file.
    uint64_t at = 0;
    for (size_t i = 0; i < layout_.items.size(); ++i) {
      Item& item = layout_.items[i];
      const size_t before = i == 0 ? 0 : layout_.items[i - 1].file;
      if (file_of[i] != before && file_of[i] != before + 1) {
        throw Fail(Code::kDataLoss, "part {} in file {}", i, file_of[i]);
      }
      if (file_of[i] != before) at = 0;
      item.file = file_of[i];
      const uint64_t bytes = item.tensor.bytes();
      item.tensor.begin = at;
      item.tensor.end = at += bytes;
    }
    layout_.files = header_checks_.size();
    if (layout_.files == 0 ||
        (!layout_.items.empty() && layout_.items.back().file + 1 != layout_.files)) {
      throw Fail(Code::kDataLoss, "{} files", layout_.files);
    }
  } catch (const Error& error) {
    if (error.code() == Code::kFailedPrecondition) throw;
    throw Fail(Code::kDataLoss, "{}: {}", name, error.what());
  }
}

uint64_t Reader::bytes() const {
  uint64_t bytes = 0;
  for (const Item& item : layout_.items) bytes += item.tensor.bytes();
  return bytes;
}

void Reader::Verify(const std::function<void(uint64_t)>& after) const {
  constexpr size_t kBlock = size_t{4} << 20;
  std::vector<std::byte> block(static_cast<size_t>(std::min<uint64_t>(kBlock, bytes())));
  XXH3_state_t state;
  uint64_t done = 0;
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < layout_.items.size(); ++i) {
    const Item& item = layout_.items[i];
    XXH3_128bits_reset(&state);
    uint64_t last_mix = 0, rows = 0;
    // Fault of the ids; reported only if the checksum matches, because damage explains more.
    std::string wrong;
    for (uint64_t at = item.tensor.begin; at < item.tensor.end;) {
      const auto part =
          std::span(block).first(std::min<uint64_t>(block.size(), item.tensor.end - at));
      files_[item.file].ReadAt(data_begins_[item.file] + at, part);
      XXH3_128bits_update(&state, part.data(), part.size());
      at += part.size();
      done += part.size();
      if (after) after(done);
      if (item.part != kIdsPart && item.part != kCandidatesPart) continue;
      ids.resize(part.size() / sizeof(uint64_t));
      std::memcpy(ids.data(), part.data(), ids.size() * sizeof(uint64_t));
      const uint64_t row_count = keys_[item.key].row_count;
      for (const uint64_t id : ids) {
        const uint64_t mix = Mix(id);
        if (wrong.empty() && id >= row_count) {
          wrong = Format("id {} in row {}, the key has ids below {}", id, rows, row_count);
        } else if (wrong.empty() && rows > 0 && mix <= last_mix) {
          wrong = Format("id {} in row {} is not in its place, or stands twice", id, rows);
        }
        last_mix = mix;
        ++rows;
      }
    }
    if (DigitsOf(XXH3_128bits_digest(&state)) != checks_[i]) {
      throw Fail(Code::kDataLoss, "{}: key {}: tensor '{}' is damaged: its check does not match",
                 files_[item.file].path(), keys_[item.key].key.view().ToString(), item.tensor.name);
    }
    if (!wrong.empty()) {
      throw Fail(Code::kDataLoss, "{}: key {}: {}", files_[item.file].path(),
                 keys_[item.key].key.view().ToString(), wrong);
    }
  }
}

size_t Reader::Find(size_t key, uint64_t part) const {
  const auto first = std::lower_bound(layout_.items.begin(), layout_.items.end(), key,
                                      [](const Item& item, size_t k) { return item.key < k; });
  const auto found =
      std::find_if(first, layout_.items.end(), [&](const Item& item) { return item.part == part; });
  return static_cast<size_t>(found - layout_.items.begin());
}

const std::string& Reader::ChecksumOf(size_t key, uint64_t part) const {
  return checks_[Find(key, part)];
}

void Reader::Read(size_t key, uint64_t part, std::span<std::byte> out, uint64_t offset) const {
  const Item& item = layout_.items[Find(key, part)];
  files_[item.file].ReadAt(data_begins_[item.file] + item.tensor.begin + offset, out);
}

}  // namespace tkv::checkpoint
