#include "checkpoint/snapshot.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <cstring>
#include <set>
#include <utility>

#include "base/format.h"
#include "base/mix.h"
#include "checkpoint/json.h"
#include "checkpoint/snapshot_folder.h"

namespace tkv::checkpoint {

// ---- writing ------------------------------------------------------------------------------------

namespace {

// Readers of other programs refuse files whose metadata does not name a format; "pt" is the one that
// all of them take.
const std::map<std::string, std::string> kMetadata = {{"format", "pt"}};

// Returns the metadata of a file of states.
std::map<std::string, std::string> MetadataOfStates(std::string index) {
  std::map<std::string, std::string> metadata = kMetadata;
  metadata["tensorkv"] = std::move(index);
  return metadata;
}

// Returns the name of the file of states: none, because the index is in that file.
std::string WithoutName(size_t) { return {}; }

std::string FileName(size_t file, size_t count) {
  return Format("model-{:05}-of-{:05}.safetensors", file + 1, count);
}

}  // namespace

std::string Writer::NameOf(size_t file) const { return FileName(file, index_.layout.files); }

Writer Writer::Folder(const std::string& path, std::vector<SavedKey> keys,
                      uint64_t file_bytes_max) {
  std::ranges::for_each(keys, CheckName);
  Writer writer;
  writer.is_folder_ = true;
  writer.index_.keys = std::move(keys);
  writer.index_.layout = LayoutOf(writer.index_.keys, file_bytes_max);
  MakeFolder(path);
  writer.lock_ = std::make_unique<FolderLock>(path);
  for (const std::string& name : Names(path)) {
    if (IsLeftOver(name)) RemoveAll(Format("{}/{}", path, name));
  }
  const std::string name = NewNameIn(path);
  writer.parent_ = path;
  writer.path_ = Format("{}/{}", path, name);
  std::string target = Format("{}/{}", path, NameMeanwhile(name));
  MakeFolder(target);
  writer.target_ = std::move(target);  // from here on the destructor removes it
  writer.BeginFile(0);
  return writer;
}

Writer Writer::SingleFile(const std::string& path, std::vector<SavedKey> keys) {
  static std::atomic<uint64_t> count = 0;
  std::ranges::for_each(keys, CheckName);
  Writer writer;
  writer.index_.keys = std::move(keys);
  writer.index_.layout = LayoutOf(writer.index_.keys, UINT64_MAX);
  writer.path_ = path;
  writer.parent_ = FolderOf(path);
  CheckFolderOf(path);
  const std::string name = path.substr(path.find_last_of('/') + 1);
  while (!writer.file_) {  // a killed process with this pid may have left such a file
    std::string target = Format("{}/.{}.{}-{}.tmp", writer.parent_, name, getpid(), ++count);
    try {
      writer.file_ = File::Create(target, path);
      writer.target_ = std::move(target);
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

void Writer::BeginFile(size_t file) {
  std::map<std::string, std::string> metadata = kMetadata;
  if (is_folder_) {
    file_ = File::Create(Format("{}/{}", target_, NameOf(file)));
  } else {  // the final index except for the checksums
    index_.checks.assign(index_.layout.items.size(), kNoCheck);
    index_.header_checks = {kNoCheck};
    metadata = MetadataOfStates(TextOfIndex(index_, WithoutName));
    index_.checks.clear();
    index_.header_checks.clear();
  }
  const std::string header = HeaderOf(TensorsOf(index_.layout, file), metadata);
  index_.header_checks.push_back(is_folder_ ? CheckOf(header) : kNoCheck);
  file_->Write(std::as_bytes(std::span(header.data(), header.size())));
}

void Writer::EndFile() {
  file_->Sync();
  file_->Close();
  file_.reset();
}

void Writer::Write(std::span<const std::byte> bytes) {
  const Item& item = index_.layout.items.at(index_.checks.size());
  if (bytes.size() > item.tensor.bytes() - written_) {
    throw Fail(Code::kInternal, "tensor '{}' has {} bytes, {} are written", item.tensor.name,
               item.tensor.bytes(), written_ + bytes.size());
  }
  if (item.file >= index_.header_checks.size()) {
    EndFile();
    BeginFile(item.file);
  }
  file_->Write(bytes);
  if (written_ == 0 && bytes.size() == item.tensor.bytes()) {
    index_.checks.push_back(CheckOf(bytes));
    return;
  }
  if (check_ == nullptr) check_ = std::make_shared<Checksum>();
  check_->Add(bytes);
  written_ += bytes.size();
  if (written_ < item.tensor.bytes()) return;
  index_.checks.push_back(check_->Digits());
  check_ = nullptr;
  written_ = 0;
}

std::string Writer::Commit() {
  if (index_.checks.size() != index_.layout.items.size()) {
    throw Fail(Code::kInternal, "{} of {} tensors are written", index_.checks.size(),
               index_.layout.items.size());
  }
  if (is_folder_) {
    EndFile();
    json::object index;
    json::object files;
    for (const Item& item : index_.layout.items) files[item.tensor.name] = NameOf(item.file);
    std::string text = TextOfIndex(index_, [&](size_t file) { return NameOf(file); });
    // The fields for other readers follow; the check has to be the first field.
    text.pop_back();
    text += Format(R"(,"metadata":{{"total_size":{}}},"weight_map":{}}})", bytes(),
                   std::string(json::serialize(files)));
    Seal(&text);
    if (text.size() > kIndexBytesMax) {
      throw Fail(Code::kResourceExhausted, "{}: {} keys need an index of {} bytes, at most {}",
                 path_, index_.keys.size(), text.size(), kIndexBytesMax);
    }
    File file = File::Create(IndexIn(target_));
    file.Write(std::as_bytes(std::span(text.data(), text.size())));
    file.Sync();
    file.Close();
    SyncFolder(target_);
  } else {
    std::string header =
        HeaderOf(TensorsOf(index_.layout, 0), MetadataOfStates(TextOfIndex(index_, WithoutName)));
    Seal(&header);
    file_->WriteAt(0, std::as_bytes(std::span(header.data(), header.size())));
    EndFile();
  }
  std::string path = path_;
  File parent = File::Open(parent_);  // before the rename: it needs memory
  Rename(target_, path_);
  is_committed_ = true;
  parent.Sync();
  parent.Close();
  if (!is_folder_) return path;
  try {
    Prune(parent_, kKept);
  } catch (const std::exception& error) {
    static_cast<void>(error);  // the next save tries again
  }
  return path;
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

bool IsFolderOfSnapshots(const std::string& path) {
  return IsFolder(path) && !Exists(IndexIn(path));
}

}  // namespace

Reader::Reader(const std::string& path) {
  CheckPath(path);
  const auto store = Exists(path) ? std::nullopt : StoreNamedBy(path);
  if (!store) {
    Open(path);
    return;
  }
  const std::string whole = path.substr(0, path.rfind('/'));
  auto found = Find(whole, *store);
  if (!found || found->keys().empty()) {
    throw Fail(Code::kNotFound, "{}: there are no keys of store {}", whole, *store);
  }
  *this = *std::move(found);
}

std::optional<Reader> Reader::Find(const std::string& path, uint32_t store) {
  CheckPath(path);
  if (!IsFolderOfSnapshots(path)) {
    Reader reader(path);
    if (!reader.Has(store)) return std::nullopt;
    reader.TakeStore(store);
    return reader;
  }
  for (const std::string& snapshot : SnapshotsIn(path)) {
    Reader reader;
    reader.OpenIndex(snapshot);
    if (!reader.Has(store)) continue;
    reader.OpenFiles();  // files of snapshots without the store may be damaged
    reader.TakeStore(store);
    return reader;
  }
  return std::nullopt;
}

Reader Reader::OfStore(const std::string& path, uint32_t store) {
  if (auto found = Find(path, store)) return *std::move(found);
  Reader reader(path);
  const std::set<uint32_t> stores = StoresAt(path, [](const Error& error) { throw error; });
  if (stores.size() > 1) {
    throw Fail(Code::kInvalidArgument,
               "{}: there are no keys of store {}, and those of several others; '{}/store-{}' "
               "names the store whose keys are to be taken",
               path, store, path, *stores.begin());
  }
  return reader;
}

std::set<uint32_t> Reader::StoresAt(const std::string& path,
                                    const std::function<void(const Error&)>& unread) {
  const Reader newest(path);
  std::set<uint32_t> stores = newest.stores();
  if (!IsFolderOfSnapshots(path)) return stores;
  for (const std::string& snapshot : SnapshotsIn(path)) {
    if (snapshot == newest.path()) continue;
    try {
      stores.merge(StoresIn(snapshot));
    } catch (const Error& error) {
      // Another try may succeed after any other error.
      if (error.code() != Code::kDataLoss && error.code() != Code::kFailedPrecondition) throw;
      unread(error);
    }
  }
  return stores;
}

std::set<uint32_t> Reader::stores() const {
  std::set<uint32_t> stores;
  for (const SavedKey& key : index_.keys) stores.insert(key.store);
  return stores;
}

bool Reader::Has(uint32_t store) const {
  const std::set<uint32_t> all = stores();
  return all.empty() || all.contains(store);
}

void Reader::TakeStore(uint32_t store) {
  if (!AreOfSeveralStores(index_.keys)) return;
  std::vector<SavedKey> keys;
  std::vector<size_t> places(index_.keys.size());  // the new position of each key that stays
  for (size_t k = 0; k < index_.keys.size(); ++k) {
    places[k] = keys.size();
    if (index_.keys[k].store == store) keys.push_back(index_.keys[k]);
  }
  std::vector<Item> items;
  std::vector<std::string> checks;
  for (size_t i = 0; i < index_.layout.items.size(); ++i) {
    if (index_.keys[index_.layout.items[i].key].store != store) continue;
    items.push_back(std::move(index_.layout.items[i]));
    items.back().key = places[items.back().key];
    checks.push_back(std::move(index_.checks[i]));
  }
  index_.keys = std::move(keys);
  index_.layout.items = std::move(items);
  index_.checks = std::move(checks);
}

void Reader::Open(const std::string& path) {
  if (!Exists(path)) throw Fail(Code::kNotFound, "{}: there is no snapshot", path);
  if (!IsFolder(path)) {
    OpenFile(path);
    return;
  }
  const auto snapshot = Exists(IndexIn(path)) ? path : NewestIn(path);
  if (!snapshot) throw Fail(Code::kNotFound, "{}: there is no snapshot", path);
  OpenIndex(*snapshot);
  OpenFiles();
}

void Reader::OpenIndex(const std::string& folder) {
  path_ = folder;
  const std::string index = IndexIn(folder);
  const std::string text = ReadIndex(index);
  index_ = IndexOf(text, index);
}

void Reader::OpenFiles() {
  for (size_t f = 0; f < index_.layout.files; ++f) {
    const std::string name = Format("{}/{}", path_, FileName(f, index_.layout.files));
    if (!Exists(name)) throw Fail(Code::kDataLoss, "{}: the file is missing", name);
    files_.push_back(File::Open(name));
    // The index determines every byte of the header.  Older builds wrote no metadata.
    std::string header, found;
    for (const auto& metadata : {kMetadata, {}}) {
      header = HeaderOf(TensorsOf(index_.layout, f), metadata);
      found.assign(header.size(), '\0');
      files_[f].ReadAt(0, std::as_writable_bytes(std::span(found)));
      if (found == header) break;
    }
    uint64_t data = 0;
    for (const Item& item : index_.layout.items) {
      if (item.file == f) data += item.tensor.bytes();
    }
    if (found != header || CheckOf(header) != index_.header_checks[f] ||
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
  index_ = ParseIndex(index->second, path);
  data_begins_.push_back(header.data_begin);
  const std::string expected = HeaderOf(TensorsOf(index_.layout, 0), header.metadata);
  if (expected != bytes) {
    throw Fail(Code::kDataLoss, "{}: the tensors are not those that the index names", path);
  }
}

void Reader::Verify(const std::function<void(uint64_t)>& after) const {
  constexpr size_t kBlock = size_t{4} << 20;
  std::vector<std::byte> block(static_cast<size_t>(std::min<uint64_t>(kBlock, bytes())));
  uint64_t done = 0;
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < index_.layout.items.size(); ++i) {
    const Item& item = index_.layout.items[i];
    Checksum check;
    uint64_t last_mix = 0, rows = 0;
    // The fault of the ids.  It is reported only if the checksum matches: otherwise damage is the
    // cause.
    std::string wrong;
    for (uint64_t at = item.tensor.begin; at < item.tensor.end;) {
      const auto part =
          std::span(block).first(std::min<uint64_t>(block.size(), item.tensor.end - at));
      files_[item.file].ReadAt(data_begins_[item.file] + at, part);
      check.Add(part);
      at += part.size();
      done += part.size();
      if (after) after(done);
      if (item.part != kIdsPart && item.part != kCandidatesPart) continue;
      ids.resize(part.size() / sizeof(uint64_t));
      std::memcpy(ids.data(), part.data(), ids.size() * sizeof(uint64_t));
      const uint64_t row_count = index_.keys[item.key].row_count;
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
    if (check.Digits() != index_.checks[i]) {
      throw Fail(Code::kDataLoss, "{}: key {}: tensor '{}' is damaged: its check does not match",
                 files_[item.file].path(), index_.keys[item.key].key.view().ToString(),
                 item.tensor.name);
    }
    if (!wrong.empty()) {
      throw Fail(Code::kDataLoss, "{}: key {}: {}", files_[item.file].path(),
                 index_.keys[item.key].key.view().ToString(), wrong);
    }
  }
}

size_t Reader::Find(size_t key, uint64_t part) const {
  const auto first = std::lower_bound(index_.layout.items.begin(), index_.layout.items.end(), key,
                                      [](const Item& item, size_t k) { return item.key < k; });
  const auto found = std::find_if(first, index_.layout.items.end(),
                                  [&](const Item& item) { return item.part == part; });
  return static_cast<size_t>(found - index_.layout.items.begin());
}

const std::string& Reader::ChecksumOf(size_t key, uint64_t part) const {
  return index_.checks[Find(key, part)];
}

void Reader::Read(size_t key, uint64_t part, std::span<std::byte> out, uint64_t offset) const {
  const Item& item = index_.layout.items[Find(key, part)];
  files_[item.file].ReadAt(data_begins_[item.file] + item.tensor.begin + offset, out);
}

}  // namespace tkv::checkpoint
