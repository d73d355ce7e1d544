#include "checkpoint/reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/format.h"
#include "base/mix.h"
#include "checkpoint/checksum.h"
#include "checkpoint/snapshot_folder.h"

namespace tkv::checkpoint {

Reader::Reader(const std::string& path) : path_(path) {
  CheckPath(path);
  if (!Exists(path)) throw Fail(Code::kNotFound, "{}: there is no snapshot", path);
  if (!IsFolder(path)) {
    OpenFileOfStates();
    return;
  }
  index_ = ReadIndex(path);
  OpenFiles();
}

Reader::Reader(std::string folder, Index index, uint32_t store)
    : path_(std::move(folder)), index_(std::move(index)) {
  OpenFiles();
  TakeStore(store);
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

void Reader::OpenFiles() {
  for (size_t f = 0; f < index_.layout.files; ++f) {
    const std::string name = Format("{}/{}", path_, FileName(f, index_.layout.files));
    if (!Exists(name)) throw Fail(Code::kDataLoss, "{}: the file is missing", name);
    files_.push_back(File::Open(name));
    // The index determines every byte of the header.  Older builds wrote no metadata.
    std::string header, found;
    for (const auto& metadata : {FileMetadata(), {}}) {
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

void Reader::OpenFileOfStates() {
  files_.push_back(File::Open(path_));
  const Header header = ReadHeader(files_[0]);
  const auto index = header.metadata.find(kIndexField);
  if (index == header.metadata.end()) {
    throw Fail(Code::kFailedPrecondition, "{}: no states were saved there by a store", path_);
  }
  std::string bytes(header.data_begin, '\0');
  files_[0].ReadAt(0, std::as_writable_bytes(std::span(bytes)));
  CheckSeal(bytes, path_);
  index_ = ParseIndex(index->second, path_);
  data_begins_.push_back(header.data_begin);
  const std::string expected = HeaderOf(TensorsOf(index_.layout, 0), header.metadata);
  if (expected != bytes) {
    throw Fail(Code::kDataLoss, "{}: the tensors are not those that the index names", path_);
  }
}

namespace {

// Checks that the mixes of ids ascend, in blocks of ids.
class IdCheck {
 public:
  explicit IdCheck(uint64_t row_count) : row_count_(row_count) {}

  void Add(std::span<const std::byte> bytes) {
    for (size_t at = 0; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
      uint64_t id = 0;
      std::memcpy(&id, bytes.data() + at, sizeof(id));
      const uint64_t mix = Mix(id);
      if (fault_.empty() && id >= row_count_) {
        fault_ = Format("id {} in row {}, the key has ids below {}", id, rows_, row_count_);
      } else if (fault_.empty() && rows_ > 0 && mix <= last_mix_) {
        fault_ = Format("id {} in row {} is not in its place, or stands twice", id, rows_);
      }
      last_mix_ = mix;
      ++rows_;
    }
  }
  const std::string& fault() const { return fault_; }  // the first; empty: none

 private:
  const uint64_t row_count_;
  uint64_t last_mix_ = 0;
  uint64_t rows_ = 0;
  std::string fault_;
};

}  // namespace

void Reader::Verify(const std::function<void(uint64_t)>& after) const {
  constexpr size_t kBlock = size_t{4} << 20;
  std::vector<std::byte> block(static_cast<size_t>(std::min<uint64_t>(kBlock, bytes())));
  uint64_t done = 0;
  for (size_t i = 0; i < index_.layout.items.size(); ++i) {
    VerifyItem(i, block, [&](uint64_t bytes) {
      done += bytes;
      if (after) after(done);
    });
  }
}

void Reader::VerifyItem(size_t i, std::span<std::byte> block,
                        const std::function<void(uint64_t)>& after) const {
  const Item& item = index_.layout.items[i];
  const SavedKey& key = index_.keys[item.key];
  const bool has_ids = item.part == kIdsPart || item.part == kCandidatesPart;
  Checksum check;
  IdCheck ids(key.row_count);
  for (uint64_t at = item.tensor.begin; at < item.tensor.end;) {
    const auto part = block.first(std::min<uint64_t>(block.size(), item.tensor.end - at));
    files_[item.file].ReadAt(data_begins_[item.file] + at, part);
    check.Add(part);
    at += part.size();
    after(part.size());
    if (has_ids) ids.Add(part);
  }
  if (check.Digits() != index_.checks[i]) {
    throw Fail(Code::kDataLoss, "{}: key {}: tensor '{}' is damaged: its check does not match",
               files_[item.file].path(), key.key.view().ToString(), item.tensor.name);
  }
  // Damage would be the cause of a fault of the ids.
  if (!ids.fault().empty()) {
    throw Fail(Code::kDataLoss, "{}: key {}: {}", files_[item.file].path(),
               key.key.view().ToString(), ids.fault());
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
