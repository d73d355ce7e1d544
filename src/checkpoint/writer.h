// Writes snapshots: values of keys and optimizer states.
//
// A snapshot is a folder PATH/000001 with safetensors files and an index in the format that other
// readers of such folders know.  The folder is built under another name and then renamed, so a
// snapshot is always complete.  States alone are a single safetensors file.  Every tensor has a
// checksum.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checksum.h"
#include "checkpoint/index.h"
#include "checkpoint/saved_key.h"

namespace tkv::checkpoint {

class Target;

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
  Writer(Writer&&) noexcept;
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
  Writer(std::unique_ptr<Target> target, Index index);
  void BeginFile(size_t file);

  std::unique_ptr<Target> target_;
  Index index_;                      // with checksums of the items written so far
  std::unique_ptr<Checksum> check_;  // of the written bytes of the next item
  uint64_t written_ = 0;
};

}  // namespace tkv::checkpoint
