// Snapshots on disk: values of keys and optimizer states.
//
// A snapshot is a folder PATH/000001 with safetensors files and an index in the format that other
// readers of such folders know.  The folder is built under another name and then renamed, so a
// snapshot is always complete.  States alone are a single safetensors file.  Everything has a
// checksum; damaged data is never returned.

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

// The update program to which a key's states belong; without text there is none.
struct SavedProgram {
  std::string text;
  bool multi_precision = false;
  // Hyperparameters for keys without a multiplier.  A store that loads keeps its own.  A restored
  // store uses these for every key.
  std::vector<double> params;
  bool lazy = true;  // see Optimizer
  bool operator==(const SavedProgram&) const = default;
};

// The description of a key in a snapshot; its arrays are separate parts.
struct SavedKey {
  Key key{KeyView(0)};
  uint32_t store = 0;  // number of the key's store among the stores of a process
  DType dtype{};
  Shape shape;  // by rows: the shape of one row
  bool is_async = false;
  bool deterministic = false;  // the store sums in the order of ranks
  uint32_t staleness = 0;      // rounds that a worker may be ahead; snapshots of old builds lack it
  uint64_t round = 0;
  uint32_t step = 0;  // number of the last push's training step (PushStep); 0: none is known
  uint64_t chunk_elements = 0;       // 0: one chunk
  std::vector<uint64_t> updates{0};  // for each chunk; by rows for each bucket
  SavedProgram program;
  bool has_value = true;
  bool has_master = false;
  std::vector<std::string> arrays;   // names of state arrays, in the compute type
  std::vector<std::string> scalars;  // names of state scalars, one f64 for each chunk
  // True if the key is kept by rows.  Its parts then have `rows` rows, which ascend by the mix of
  // their ids (base/mix.h), and the ids.
  bool by_rows = false;
  uint64_t rows = 0;
  uint64_t row_count = 0;
  RowInitializer initializer;
  RowPolicy policy;
  uint64_t candidates = 0;   // pushed ids that have no row yet
  uint64_t row_version = 0;  // the version counter of the notes
  // The key's own optimizer, independent of the store's; without text there is none.
  SavedProgram own;
  // True if this entry is no key but the bytes of the states that the updater, a function, keeps
  // for all keys.  At most one entry is; it is the last.
  bool is_of_updater = false;

  bool operator==(const SavedKey&) const = default;
};

// Part numbers of a key.
inline constexpr uint64_t kValuePart = 0, kMasterPart = 1, kStateParts = 2;
// Additional parts of a key by rows.  The ids and the notes of rows come before the other parts;
// candidates and their notes come last.
inline constexpr uint64_t kIdsPart = UINT64_MAX, kNotesPart = UINT64_MAX - 1;
inline constexpr uint64_t kCandidatesPart = UINT64_MAX - 2, kCandidateNotesPart = UINT64_MAX - 3;
inline bool IsOfRowsAlone(uint64_t part) { return part >= kCandidateNotesPart; }
// Returns the number of rows or candidates in a part of a key by rows; 0 for scalars and for dense
// keys.
uint64_t RowsOf(const SavedKey& key, uint64_t part);

// A part of a key: a tensor in a file.
struct Item {
  size_t key = 0;
  uint64_t part = 0;
  size_t file = 0;
  Tensor tensor;
};

// The tensors of a snapshot and the number of its files.
struct Layout {
  std::vector<Item> items;  // in the order of writing
  size_t files = 0;
};
// Returns the place of every part of these keys.  A file takes tensors up to file_bytes_max, and at
// least one.  If the keys are of several stores, the tensors of store N > 0 are named
// "store-N/...".
Layout LayoutOf(const std::vector<SavedKey>& keys, uint64_t file_bytes_max);

// The checksum of bytes that arrive in pieces.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  void Add(std::span<const std::byte> bytes);
  // Returns the checksum of all bytes so far, as an index has it.
  std::string Digits() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

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

  const std::vector<Item>& items() const { return layout_.items; }
  uint64_t bytes() const;  // sum over all items
  // Writes the next bytes of the next item: all of it or a part.
  void Write(std::span<const std::byte> bytes);
  // Makes the snapshot visible and durable, and removes old snapshots of the folder.
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
  std::vector<SavedKey> keys_;
  Layout layout_;
  std::vector<std::string> checks_;  // of the items written so far
  std::shared_ptr<Checksum> check_;  // of the written bytes of the next item
  uint64_t written_ = 0;
  std::vector<std::string> header_checks_;  // of the files
  std::optional<File> file_;
  bool is_committed_ = false;
};

// Reads an existing snapshot.
class Reader {
 public:
  // Opens a folder of snapshots (the newest counts), a snapshot, or a file of states.  If
  // "/store-N" follows the path, the reader has only the keys of store N.
  //   throws  kNotFound (also: no keys of store N), kDataLoss (the message names the file and the
  //           key; also for a key that is not UTF-8 or has the character zero), kFailedPrecondition
  //           (a newer format, a pickle), kInvalidArgument (no path)
  explicit Reader(const std::string& path);

  // Drops the keys of all stores but one.  Does nothing if all keys are of one store, or if the
  // path has named a store.
  //   throws  kNotFound  the snapshot has no keys of that store
  void TakeStore(uint32_t store);
  // Returns the numbers of the stores that have keys in the snapshot, ascending.
  std::vector<uint32_t> stores() const;

  const std::string& path() const { return path_; }  // of the snapshot itself
  const std::vector<SavedKey>& keys() const { return keys_; }
  uint64_t bytes() const;
  // Reads all parts once and compares their checksums.
  //   calls   `after` with the number of bytes read so far
  //   throws  kDataLoss  a checksum differs, ids do not ascend, or an id is not below the key's row
  //                      count; the message names the file and the key
  void Verify(const std::function<void(uint64_t)>& after = {}) const;
  // Returns the checksum of a part, which the key has to have.
  const std::string& ChecksumOf(size_t key, uint64_t part) const;
  // Reads bytes of a part, which the key has to have.
  void Read(size_t key, uint64_t part, std::span<std::byte> out, uint64_t offset = 0) const;

 private:
  void Open(const std::string& path);
  void OpenFolder(const std::string& folder);
  void OpenFile(const std::string& file);
  void Parse(const std::string& index, const std::string& name);
  size_t Find(size_t key, uint64_t part) const;  // index in layout_.items

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
