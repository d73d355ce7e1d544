// The keys of a snapshot: their descriptions, and the tensors that they need.

#pragma once

#include <cstdint>
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
  uint32_t staleness = 0;      // rounds that a worker may be ahead
  uint64_t round = 0;
  uint32_t step = 0;  // number of the last push's training step (PushStep); 0: none is known
  uint64_t chunk_elements = 0;       // 0: one chunk
  std::vector<uint64_t> updates{0};  // for each chunk; by rows for each bucket
  SavedProgram program;
  bool has_value = true;
  bool has_master = false;
  std::vector<std::string> arrays;   // names of state arrays, in the compute type
  std::vector<std::string> scalars;  // names of state scalars, one f64 for each chunk or bucket
  // True if the key is kept by rows, which ascend by the mix of their ids (base/mix.h).
  bool by_rows = false;
  uint64_t rows = 0;       // in the value, the master, each state array, the ids and the notes
  uint64_t row_count = 0;  // ids are below it
  RowInitializer initializer;
  RowPolicy policy;
  uint64_t candidates = 0;   // pushed ids that have no row yet
  uint64_t row_version = 0;  // the version counter of the notes
  // The key's own optimizer, independent of the store's; without text there is none.
  SavedProgram own;
  // True if this entry is no key: it has the bytes of the states that the updater, a function,
  // keeps for all keys.  At most one entry, the last, is of this kind.
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
// Returns the tensor and the file of every part of these keys.  A file takes tensors up to
// file_bytes_max, and at least one.  If the keys are of several stores, the tensors of store N > 0
// are named "store-N/...".
Layout LayoutOf(const std::vector<SavedKey>& keys, uint64_t file_bytes_max);

// Returns true if not all keys are of the same store.
bool AreOfSeveralStores(const std::vector<SavedKey>& keys);
// Returns the tensors of one of the files.
std::vector<Tensor> TensorsOf(const Layout& layout, size_t file);
// Returns the bytes of all tensors.
uint64_t BytesOf(const Layout& layout);

// Refuses a name that this build could not read again, both when writing and when reading a
// snapshot of another build.
//   throws  kDataLoss
void CheckName(const SavedKey& key);

}  // namespace tkv::checkpoint
