// Values of keys, and what optimizers keep beside them, on disk.
//
// A snapshot is a folder: PATH/000001 with safetensors files and an index of them, as other readers
// of such folders know it.  It is built beside and renamed, so that it is there whole or not at all.
// States alone are one safetensors file.  Everything has a check; what is damaged is never handed
// out.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "tkv/key.h"
#include "tkv/rows.h"
#include "tkv/shape.h"

namespace tkv::checkpoint {

// The update program that keeps states of a key; without text there is none.
struct SavedProgram {
  std::string text;
  bool multi_precision = false;
  // As they were for keys without a multiplier.  A store that loads has its own; one that is restored
  // has these for every key.
  std::vector<double> params;
  bool lazy = true;  // as of an Optimizer
  bool operator==(const SavedProgram&) const = default;
};

struct SavedKey {
  Key key{KeyView(0)};
  uint32_t store = 0;  // number of the store that has the key, among those of one process
  DType dtype{};
  Shape shape;  // by rows of one row
  bool is_async = false;
  bool deterministic = false;  // its store sums in the order of ranks
  uint64_t round = 0;
  uint64_t chunk_elements = 0;       // 0: one chunk
  std::vector<uint64_t> updates{0};  // of each chunk; by rows of each bucket
  SavedProgram program;
  bool has_value = true;
  bool has_master = false;
  std::vector<std::string> arrays;   // names of state arrays, in the compute type
  std::vector<std::string> scalars;  // and of state scalars, one f64 for each chunk
  // A key that is kept by rows: its parts are those of so many rows, which ascend by the mix of
  // their ids (base/mix.h), and the ids.
  bool by_rows = false;
  uint64_t rows = 0;
  uint64_t row_count = 0;
  RowInitializer initializer;
  RowPolicy policy;
  uint64_t candidates = 0;   // ids that have been pushed and have no row
  uint64_t row_version = 0;  // that notes are counted by
  SavedProgram own;  // its own optimizer, whatever the store has; without text there is none
  // No key of the store: the bytes that its updater, a function, keeps for all keys.  One at most, and
  // the last of the keys.
  bool is_of_updater = false;

  bool operator==(const SavedKey&) const = default;
};

// Numbers of a key's parts.
inline constexpr uint64_t kValuePart = 0, kMasterPart = 1, kStateParts = 2;
// Of a key by rows: the ids and what is noted of each row come first, candidates and what is noted of
// those last.
inline constexpr uint64_t kIdsPart = UINT64_MAX, kNotesPart = UINT64_MAX - 1;
inline constexpr uint64_t kCandidatesPart = UINT64_MAX - 2, kCandidateNotesPart = UINT64_MAX - 3;
inline bool IsOfRowsAlone(uint64_t part) { return part >= kCandidateNotesPart; }
// How many rows a part of a key by rows is of, or candidates; 0 of scalars.
uint64_t RowsOf(const SavedKey& key, uint64_t part);

// One part of a key: a tensor of a file.
struct Item {
  size_t key = 0;
  uint64_t part = 0;
  size_t file = 0;
  Tensor tensor;
};

struct Layout {
  std::vector<Item> items;  // in the order in which they are written
  size_t files = 0;
};
// Returns the place of every part of these keys.  A file takes tensors up to file_bytes_max, and at
// least one.  If the keys are of several stores, tensors of store N > 0 are named "store-N/...".
Layout LayoutOf(const std::vector<SavedKey>& keys, uint64_t file_bytes_max);

// Writes the parts of keys one after the other.  What is not committed leaves nothing.
class Writer {
 public:
  static constexpr uint64_t kFileBytes = uint64_t{4} << 30;
  static constexpr size_t kKept = 2;  // snapshots of a folder, the newest ones

  // A new snapshot in the folder `path`, which is made where it is not there.
  //   throws  as File and FolderLock do; kDataLoss: a key that a Reader would refuse
  static Writer Folder(const std::string& path, std::vector<SavedKey> keys,
                       uint64_t file_bytes_max = kFileBytes);
  // One file of all parts, which takes the place of what is there.
  static Writer SingleFile(const std::string& path, std::vector<SavedKey> keys);
  Writer(Writer&&) noexcept = default;
  ~Writer();

  const std::vector<Item>& items() const { return layout_.items; }
  uint64_t bytes() const;  // of all items
  // The next bytes of the next item, all of it or a part.
  void Write(std::span<const std::byte> bytes);
  // From here on it is there, whatever happens.
  //   returns  the path of the snapshot
  std::string Commit();

 private:
  struct Hash;
  Writer() = default;
  void BeginFile(size_t file);
  void EndFile();
  std::string NameOf(size_t file) const;

  bool is_folder_ = false;
  std::string path_;    // as it will be
  std::string target_;  // where it is built
  std::string parent_;
  std::unique_ptr<FolderLock> lock_;
  std::vector<SavedKey> keys_;
  Layout layout_;
  std::vector<std::string> checks_;  // of the items that are written
  std::shared_ptr<Hash> hash_;       // of what is written of the next one
  uint64_t written_ = 0;
  std::vector<std::string> header_checks_;  // of the files
  std::optional<File> file_;
  bool is_committed_ = false;
};

class Reader {
 public:
  // Opens a folder of snapshots, of which the newest counts; one snapshot; or a file of states.  With
  // "/store-N" behind any of them the reader has the keys of store N alone.
  //   throws  kNotFound (also: no keys of store N), kDataLoss (naming the file and the key; a key that
  //           is not UTF-8 or has the character zero), kFailedPrecondition (a newer format, a pickle),
  //           kInvalidArgument (no path)
  explicit Reader(const std::string& path);

  // Drops the keys of all stores but one.  Does nothing if the keys are of one store, or if the path
  // has named a store.
  //   throws  kNotFound  the snapshot has no keys of that store
  void TakeStore(uint32_t store);
  // Numbers of the stores that have keys here, ascending.
  std::vector<uint32_t> stores() const;

  const std::string& path() const { return path_; }  // of the snapshot itself
  const std::vector<SavedKey>& keys() const { return keys_; }
  uint64_t bytes() const;
  // Reads all parts once and compares their checks.
  //   calls   `after` with the number of bytes read so far
  //   throws  kDataLoss  naming the file and the key; also where ids do not ascend, or the key
  //                      does not have them
  void Verify(const std::function<void(uint64_t)>& after = {}) const;
  // A part that the key has.
  void Read(size_t key, uint64_t part, std::span<std::byte> out, uint64_t offset = 0) const;

 private:
  void Open(const std::string& path);
  void OpenFolder(const std::string& folder);
  void OpenFile(const std::string& file);
  void Parse(const std::string& index, const std::string& name);
  const Item& Find(size_t key, uint64_t part) const;

  std::string path_;
  bool is_of_named_store_ = false;
  std::vector<SavedKey> keys_;
  Layout layout_;
  std::vector<std::string> checks_;
  std::vector<File> files_;
  std::vector<uint64_t> data_begins_;
  std::vector<std::string> header_checks_;
};

}  // namespace tkv::checkpoint
