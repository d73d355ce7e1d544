#include "checkpoint/saved_key.h"

#include <algorithm>
#include <set>

#include "base/format.h"
#include "base/key_text.h"

namespace tkv::checkpoint {
namespace {

uint64_t PartCount(const SavedKey& key) {
  return kStateParts + key.arrays.size() + key.scalars.size();
}

bool HasPart(const SavedKey& key, uint64_t part) {
  if (part == kIdsPart) return key.by_rows;
  if (part == kNotesPart) return key.by_rows && key.policy.has_notes;
  if (IsOfRowsAlone(part)) return key.by_rows && key.candidates > 0;
  if (part == kValuePart) return key.has_value;
  return part == kMasterPart ? key.has_master : part < PartCount(key);
}

// Returns the tensor of a part; its begin is 0.
Tensor TensorOf(const SavedKey& key, uint64_t part) {
  Tensor tensor;
  const std::string name = key.key.is_string() ? key.key.text() : Format("{}", key.key.number());
  if (IsOfRowsAlone(part)) {
    tensor.name = name + (part == kIdsPart          ? "#ids"
                          : part == kNotesPart      ? "#notes"
                          : part == kCandidatesPart ? "#candidates"
                                                    : "#candidate_notes");
    tensor.dtype = DType::kI64;
    tensor.shape = {static_cast<int64_t>(RowsOf(key, part))};
    const bool is_noted = part == kNotesPart || part == kCandidateNotesPart;
    if (is_noted) tensor.shape.push_back(2);  // version, count
    tensor.end = RowsOf(key, part) * sizeof(int64_t) * (is_noted ? 2 : 1);
    return tensor;
  }
  const uint64_t state = part - kStateParts;
  const bool is_scalar = part >= kStateParts && state >= key.arrays.size();
  tensor.dtype = is_scalar ? DType::kF64 : part == kValuePart ? key.dtype : ComputeType(key.dtype);
  if (part == kValuePart) {
    tensor.name = name;
  } else if (part == kMasterPart) {
    tensor.name = name + "#master";
  } else {
    tensor.name = Format("{}#{}", name,
                         is_scalar ? key.scalars[state - key.arrays.size()] : key.arrays[state]);
  }
  uint64_t elements = 1;
  if (is_scalar) {
    elements = key.updates.size();
    tensor.shape = {static_cast<int64_t>(elements)};
  } else {
    elements = static_cast<uint64_t>(key.shape.size());
    if (key.by_rows) {
      tensor.shape.push_back(static_cast<int64_t>(key.rows));
      elements *= key.rows;
    }
    for (const int64_t dim : key.shape) tensor.shape.push_back(dim);
  }
  tensor.end = elements * ItemSize(tensor.dtype);
  return tensor;
}

}  // namespace

bool AreOfSeveralStores(const std::vector<SavedKey>& keys) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](const SavedKey& key) { return key.store != keys[0].store; });
}

uint64_t RowsOf(const SavedKey& key, uint64_t part) {
  if (!key.by_rows) return 0;
  if (part == kCandidatesPart || part == kCandidateNotesPart) return key.candidates;
  const bool is_scalar = !IsOfRowsAlone(part) && part >= kStateParts + key.arrays.size();
  return is_scalar ? 0 : key.rows;
}

Layout LayoutOf(const std::vector<SavedKey>& keys, uint64_t file_bytes_max) {
  Layout layout;
  std::set<std::string> names = {"__metadata__"};
  const bool has_stores = AreOfSeveralStores(keys);
  uint64_t at = 0;
  for (size_t k = 0; k < keys.size(); ++k) {
    std::vector<uint64_t> parts = {kIdsPart, kNotesPart};
    for (uint64_t part = 0; part < PartCount(keys[k]); ++part) parts.push_back(part);
    parts.insert(parts.end(), {kCandidatesPart, kCandidateNotesPart});
    for (const uint64_t part : parts) {
      if (!HasPart(keys[k], part)) continue;
      Item item{k, part, 0, TensorOf(keys[k], part)};
      if (has_stores && keys[k].store > 0) {
        item.tensor.name = Format("store-{}/{}", keys[k].store, item.tensor.name);
      }
      while (!names.insert(item.tensor.name).second) item.tensor.name += '#';
      const uint64_t bytes = item.tensor.bytes();
      const bool is_full = at > 0 && at + bytes > file_bytes_max;
      if (layout.files == 0 || is_full) {
        ++layout.files;
        at = 0;
      }
      item.file = layout.files - 1;
      item.tensor.begin = at;
      item.tensor.end = at += bytes;
      layout.items.push_back(std::move(item));
    }
  }
  if (layout.files == 0) layout.files = 1;
  return layout;
}

std::vector<Tensor> TensorsOf(const Layout& layout, size_t file) {
  std::vector<Tensor> tensors;
  for (const Item& item : layout.items) {
    if (item.file == file) tensors.push_back(item.tensor);
  }
  return tensors;
}

uint64_t BytesOf(const Layout& layout) {
  uint64_t bytes = 0;
  for (const Item& item : layout.items) bytes += item.tensor.bytes();
  return bytes;
}

void CheckName(const SavedKey& key) {
  const char* const why = key.key.is_string() ? WhyNoKey(key.key.text()) : nullptr;
  if (why != nullptr) throw Fail(Code::kDataLoss, "the key {} {}", key.key.view().ToString(), why);
}

}  // namespace tkv::checkpoint
