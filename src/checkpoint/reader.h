// Reads snapshots, which checkpoint/writer.h describes.

#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file.h"
#include "checkpoint/index.h"
#include "checkpoint/saved_key.h"

namespace tkv::checkpoint {

// An open snapshot.  Its tensors may be damaged: call Verify before the data is used.
class Reader {
 public:
  // Opens a snapshot: a folder with an index, or a file of states.
  //   throws  kNotFound; kInvalidArgument     no path
  //           kFailedPrecondition             a newer format, or a pickle
  //           kDataLoss                       the message names the file and the key; also for a
  //                                           key that is not UTF-8 or has the character zero
  explicit Reader(const std::string& path);
  // Opens the keys of a store in a snapshot folder with this index.
  Reader(std::string folder, Index index, uint32_t store);

  const std::string& path() const { return path_; }
  const std::vector<SavedKey>& keys() const { return index_.keys; }
  uint64_t bytes() const { return BytesOf(index_.layout); }
  // Returns the numbers of the stores whose keys this reader has.
  std::set<uint32_t> stores() const { return StoresOf(index_); }
  // Drops the keys of all other stores.
  void TakeStore(uint32_t store);
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
  void OpenFiles();  // opens the files that the index names
  void OpenFileOfStates();
  void VerifyItem(size_t item, std::span<std::byte> block,
                  const std::function<void(uint64_t)>& after) const;
  size_t Find(size_t key, uint64_t part) const;  // index in index_.layout.items

  std::string path_;
  Index index_;
  std::vector<File> files_;
  std::vector<uint64_t> data_begins_;
};

}  // namespace tkv::checkpoint
