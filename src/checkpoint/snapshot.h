// Snapshots on disk: values of keys and optimizer states.
//
// A snapshot is a folder PATH/000001 with safetensors files and an index in the format that other
// readers of such folders know.  The folder is built under another name and then renamed, so a
// snapshot is always complete.  States alone are a single safetensors file.  Every tensor has a
// checksum: call Reader::Verify before the data is used.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checksum.h"
#include "checkpoint/file.h"
#include "checkpoint/index.h"
#include "checkpoint/saved_key.h"

namespace tkv::checkpoint {

// Writes the parts of keys one after the other.  Without Commit the destructor removes everything.
class Writer {
 public:
  static constexpr uint64_t kFileBytes = uint64_t{4} << 30;
  static constexpr size_t kKept = 2;  // snapshots that a folder keeps: the newest

  // Begins a new snapshot in the folder `path`, which is created if it does not exist.
  //   throws  as File and FolderLock do; kDataLoss: a key that a Reader would refuse
  static Writer Folder(const std::string& path, std::vector<SavedKey> keys,
                       uint64_t file_bytes_max = kFileBytes);
  // Begins a single file of all parts, which replaces an existing file at `path`.
  static Writer SingleFile(const std::string& path, std::vector<SavedKey> keys);
  Writer(Writer&&) noexcept = default;
  ~Writer();

  const std::vector<Item>& items() const { return index_.layout.items; }
  uint64_t bytes() const { return BytesOf(index_.layout); }
  // Writes the next bytes of the next item: all of it or a part.  Call it also for an item of 0
  // bytes.
  void Write(std::span<const std::byte> bytes);
  // Makes the snapshot visible and durable, and removes old snapshots of the folder.  If the last
  // sync fails, Commit throws although the snapshot is visible.
  //   returns  the path of the snapshot
  std::string Commit();

 private:
  Writer() = default;
  void BeginFile(size_t file);
  void EndFile();
  std::string NameOf(size_t file) const;

  bool is_folder_ = false;
  std::string path_;    // final path
  std::string target_;  // temporary path
  std::string parent_;
  std::unique_ptr<FolderLock> lock_;
  Index index_;                      // with checksums of the items written so far
  std::shared_ptr<Checksum> check_;  // of the written bytes of the next item
  uint64_t written_ = 0;
  std::optional<File> file_;
  bool is_committed_ = false;
};

// Reads an existing snapshot.
class Reader {
 public:
  // Opens the newest snapshot of a folder, a snapshot, or a file of states.  If the path does not
  // exist and ends in "/store-N", the constructor opens the path before that as Find does for store
  // N.
  //   throws  kNotFound (also: no keys of store N), kDataLoss (the message names the file and the
  //           key; also for a key that is not UTF-8 or has the character zero), kFailedPrecondition
  //           (a newer format, a pickle), kInvalidArgument (no path)
  explicit Reader(const std::string& path);
  // Opens the keys of a store.  In a folder of snapshots, opens the newest one with keys of the
  // store, or without any keys.
  //   returns  none if the keys there are all of other stores
  //   throws   as the constructor; also if a newer snapshot of the folder cannot be read
  static std::optional<Reader> Find(const std::string& path, uint32_t store);
  // Opens the keys of a store, as Find does.  If all keys there are of one other store, opens the
  // newest of those.
  //   throws  as Find; kInvalidArgument  the keys are of several other stores
  static Reader OfStore(const std::string& path, uint32_t store);
  // Returns the numbers of the stores that have keys at `path`, in any snapshot of a folder.
  //   unread  takes the error of each older snapshot whose index is damaged, of a newer format or
  //           closed to this user; its stores are then not returned
  //   throws  as the constructor
  static std::set<uint32_t> StoresAt(const std::string& path,
                                     const std::function<void(const Error&)>& unread);

  // Returns the numbers of the stores whose keys this reader has.
  std::set<uint32_t> stores() const;

  const std::string& path() const { return path_; }  // of the snapshot itself
  const std::vector<SavedKey>& keys() const { return index_.keys; }
  uint64_t bytes() const { return BytesOf(index_.layout); }
  // Reads all parts once and compares their checksums.
  //   calls   `after` with the number of bytes read so far
  //   throws  kDataLoss  a checksum differs, the mixes (base/mix.h) of ids do not ascend, or an id
  //                      is not below the key's row count; the message names the file and the key
  void Verify(const std::function<void(uint64_t)>& after = {}) const;
  // Returns the checksum of a part, which the key has to have.
  const std::string& ChecksumOf(size_t key, uint64_t part) const;
  // Reads bytes of a part, which the key has to have.  Compares no checksum.
  void Read(size_t key, uint64_t part, std::span<std::byte> out, uint64_t offset = 0) const;

 private:
  Reader() = default;
  void Open(const std::string& path);
  void OpenIndex(const std::string& folder);
  void OpenFiles();  // opens the files that the index names
  // Returns true if the reader has keys of a store, or no keys at all.
  bool Has(uint32_t store) const;
  void TakeStore(uint32_t store);  // drops the keys of all other stores
  void OpenFile(const std::string& file);
  size_t Find(size_t key, uint64_t part) const;  // index in index_.layout.items

  std::string path_;
  Index index_;
  std::vector<File> files_;
  std::vector<uint64_t> data_begins_;
};

}  // namespace tkv::checkpoint
