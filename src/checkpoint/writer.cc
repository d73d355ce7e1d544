#include "checkpoint/writer.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/json/serialize.hpp>
#include <map>
#include <optional>
#include <utility>

#include "base/format.h"
#include "checkpoint/file.h"
#include "checkpoint/json.h"
#include "checkpoint/snapshot_folder.h"

namespace tkv::checkpoint {

// Files that are being written under a temporary name, which the destructor removes before a
// Commit.
class Target {
 public:
  // Makes the target of a snapshot that will be at `path`, in the folder `parent`.
  Target(std::string path, std::string parent)
      : path_(std::move(path)), parent_(std::move(parent)) {}
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  virtual ~Target() {
    if (is_committed_ || temporary_.empty()) return;
    file_.reset();
    try {
      RemoveAll(temporary_);
    } catch (const std::exception& error) {
      // The next save removes remains in a folder of snapshots.  Remains of a single file stay.
      static_cast<void>(error);
    }
  }

  // Begins a file of the index with its header.
  //   returns  the checksum of the header
  virtual std::string BeginFile(const Index& index, size_t file) = 0;
  void Write(std::span<const std::byte> bytes) { file_->Write(bytes); }
  void EndFile() {
    file_->Sync();
    file_->Close();
    file_.reset();
  }
  // Ends the last file, writes the complete index, and gives the files their name.
  //   returns  this name
  std::string Commit(const Index& index) {
    WriteIndex(index);
    std::string path = path_;
    File parent = File::Open(parent_);  // before the rename: it needs memory
    Rename(temporary_, path_);
    is_committed_ = true;
    parent.Sync();
    parent.Close();
    RemoveOld();
    return path;
  }

 protected:
  virtual void WriteIndex(const Index& index) = 0;
  // Removes earlier snapshots.  An error is not one of the new snapshot: the next save tries again.
  virtual void RemoveOld() noexcept {}

  const std::string path_;
  const std::string parent_;
  std::unique_ptr<FolderLock> lock_;  // of a folder of snapshots; held until the destructor's end
  std::string temporary_;
  std::optional<File> file_;

 private:
  bool is_committed_ = false;
};

namespace {

void WriteText(const std::string& text, File* file) {
  file->Write(std::as_bytes(std::span(text.data(), text.size())));
}

// A numbered folder of several files and an index.
class FolderTarget final : public Target {
 public:
  FolderTarget(const std::string& parent, const std::string& name, std::unique_ptr<FolderLock> lock)
      : Target(Format("{}/{}", parent, name), parent) {
    lock_ = std::move(lock);
    std::string temporary = Format("{}/{}", parent, NameMeanwhile(name));
    MakeFolder(temporary);
    temporary_ = std::move(temporary);
  }

  std::string BeginFile(const Index& index, size_t file) override {
    file_ = File::Create(Format("{}/{}", temporary_, FileName(file, index.layout.files)));
    const std::string header = HeaderOf(TensorsOf(index.layout, file), FileMetadata());
    WriteText(header, &*file_);
    return CheckOf(header);
  }

 private:
  void WriteIndex(const Index& index) override {
    EndFile();
    const auto name_of = [&](size_t file) { return FileName(file, index.layout.files); };
    json::object files;
    for (const Item& item : index.layout.items) files[item.tensor.name] = name_of(item.file);
    std::string text = TextOfIndex(index, name_of);
    // The fields for other readers follow; the check has to be the first field.
    text.pop_back();
    text += Format(R"(,"metadata":{{"total_size":{}}},"weight_map":{}}})", BytesOf(index.layout),
                   std::string(json::serialize(files)));
    Seal(&text);
    if (text.size() > kIndexBytesMax) {
      throw Fail(Code::kResourceExhausted, "{}: {} keys need an index of {} bytes, at most {}",
                 path_, index.keys.size(), text.size(), kIndexBytesMax);
    }
    File file = File::Create(IndexIn(temporary_));
    WriteText(text, &file);
    file.Sync();
    file.Close();
    SyncFolder(temporary_);
  }

  void RemoveOld() noexcept override {
    try {
      Prune(parent_, Writer::kKept);
    } catch (const std::exception& error) {
      static_cast<void>(error);
    }
  }
};

// A file of states: its metadata has the index.
class FileTarget final : public Target {
 public:
  explicit FileTarget(const std::string& path) : Target(path, FolderOf(path)) {
    static std::atomic<uint64_t> count = 0;
    const std::string name = path.substr(path.find_last_of('/') + 1);
    while (!file_) {  // a killed process with this pid may have left such a file
      std::string temporary = Format("{}/.{}.{}-{}.tmp", parent_, name, getpid(), ++count);
      try {
        file_ = File::Create(temporary, path);
        temporary_ = std::move(temporary);
      } catch (const Error& error) {
        if (error.code() != Code::kAlreadyExists) throw;
      }
    }
  }

  // The index has no checksums yet, and its text has its final size.
  std::string BeginFile(const Index& index, size_t) override {
    WriteText(HeaderWith(index), &*file_);
    return kNoCheck;
  }

 private:
  static std::string HeaderWith(const Index& index) {
    std::map<std::string, std::string> metadata = FileMetadata();
    metadata[kIndexField] = TextOfIndex(index, [](size_t) { return std::string(); });
    return HeaderOf(TensorsOf(index.layout, 0), metadata);
  }

  void WriteIndex(const Index& index) override {
    std::string header = HeaderWith(index);
    Seal(&header);
    file_->WriteAt(0, std::as_bytes(std::span(header.data(), header.size())));
    EndFile();
  }
};

Index UnwrittenIndex(std::vector<SavedKey> keys, uint64_t file_bytes_max) {
  std::ranges::for_each(keys, CheckName);
  Index index;
  index.keys = std::move(keys);
  index.layout = LayoutOf(index.keys, file_bytes_max);
  return index;
}

}  // namespace

Writer::Writer(std::unique_ptr<Target> target, Index index)
    : target_(std::move(target)), index_(std::move(index)) {
  BeginFile(0);
}

Writer::Writer(Writer&&) noexcept = default;
Writer::~Writer() = default;

Writer Writer::Folder(const std::string& path, std::vector<SavedKey> keys,
                      uint64_t file_bytes_max) {
  Index index = UnwrittenIndex(std::move(keys), file_bytes_max);
  MakeFolder(path);
  auto lock = std::make_unique<FolderLock>(path);
  for (const std::string& name : Names(path)) {
    if (IsLeftOver(name)) RemoveAll(Format("{}/{}", path, name));
  }
  return {std::make_unique<FolderTarget>(path, NewNameIn(path), std::move(lock)), std::move(index)};
}

Writer Writer::SingleFile(const std::string& path, std::vector<SavedKey> keys) {
  Index index = UnwrittenIndex(std::move(keys), UINT64_MAX);
  CheckFolderOf(path);
  return {std::make_unique<FileTarget>(path), std::move(index)};
}

void Writer::BeginFile(size_t file) {
  index_.header_checks.push_back(target_->BeginFile(index_, file));
}

void Writer::Write(std::span<const std::byte> bytes) {
  const Item& item = index_.layout.items.at(index_.checks.size());
  if (bytes.size() > item.tensor.bytes() - written_) {
    throw Fail(Code::kInternal, "tensor '{}' has {} bytes, {} are written", item.tensor.name,
               item.tensor.bytes(), written_ + bytes.size());
  }
  if (item.file >= index_.header_checks.size()) {
    target_->EndFile();
    BeginFile(item.file);
  }
  target_->Write(bytes);
  if (written_ == 0 && bytes.size() == item.tensor.bytes()) {
    index_.checks.push_back(CheckOf(bytes));
    return;
  }
  if (check_ == nullptr) check_ = std::make_unique<Checksum>();
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
  return target_->Commit(index_);
}

}  // namespace tkv::checkpoint
