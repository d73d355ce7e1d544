#include "checkpoint/index.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <utility>

#include "base/format.h"
#include "checkpoint/checksum.h"
#include "checkpoint/json.h"
#include "checkpoint/key_entry.h"

namespace tkv::checkpoint {
namespace {

constexpr uint64_t kFormat = 1;
constexpr uint64_t kRowsFormat = 2;    // if there are keys by rows
constexpr uint64_t kStoresFormat = 3;  // if there are keys of several stores

const std::string& CheckAt(const std::vector<std::string>& checks, size_t i) {
  static const std::string none = kNoCheck;
  return i < checks.size() ? checks[i] : none;
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

std::set<uint32_t> StoresOf(const Index& index) {
  std::set<uint32_t> stores;
  for (const SavedKey& key : index.keys) stores.insert(key.store);
  return stores;
}

std::map<std::string, std::string> FileMetadata() { return {{"format", "pt"}}; }

std::string TextOfIndex(const Index& made, const std::function<std::string(size_t file)>& name_of) {
  const auto& [keys, layout, checks, header_checks] = made;
  json::object index;
  index["check"] = kNoCheck;
  const bool has_rows =
      std::any_of(keys.begin(), keys.end(), [](const SavedKey& key) { return key.by_rows; });
  index["format"] = AreOfSeveralStores(keys) ? kStoresFormat : has_rows ? kRowsFormat : kFormat;
  json::array files;
  for (size_t f = 0; f < layout.files; ++f) {
    files.push_back(json::object{{"name", name_of(f)}, {"check", CheckAt(header_checks, f)}});
  }
  index["files"] = std::move(files);
  std::vector<SavedProgram> programs;
  json::array entries;
  size_t item = 0;
  for (size_t k = 0; k < keys.size(); ++k) {
    json::object entry = EntryOf(keys[k], &programs);
    json::array parts;
    for (; item < layout.items.size() && layout.items[item].key == k; ++item) {
      parts.push_back(json::object{{"tensor", layout.items[item].tensor.name},
                                   {"file", layout.items[item].file},
                                   {"check", CheckAt(checks, item)}});
    }
    entry["parts"] = std::move(parts);
    entries.push_back(std::move(entry));
  }
  json::array texts;
  for (const SavedProgram& program : programs) texts.push_back(EntryOf(program));
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
