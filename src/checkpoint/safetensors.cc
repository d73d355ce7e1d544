#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <boost/json/serialize.hpp>
#include <cstring>

#include "base/format.h"
#include "checkpoint/json.h"

namespace tkv::checkpoint {
namespace {

struct DTypeName {
  DType dtype;
  const char* text;
};
constexpr std::array kDTypeNames = {DTypeName{DType::kF32, "F32"},
                                    DTypeName{DType::kF64, "F64"},
                                    DTypeName{DType::kF16, "F16"},
                                    DTypeName{DType::kBF16, "BF16"},
                                    DTypeName{DType::kI8, "I8"},
                                    DTypeName{DType::kU8, "U8"},
                                    DTypeName{DType::kI16, "I16"},
                                    DTypeName{DType::kI32, "I32"},
                                    DTypeName{DType::kI64, "I64"},
                                    DTypeName{DType::kBool, "BOOL"},
                                    DTypeName{DType::kF8E4M3FN, "F8_E4M3"},
                                    DTypeName{DType::kF8E5M2, "F8_E5M2"},
                                    DTypeName{DType::kU16, "U16"},
                                    DTypeName{DType::kU32, "U32"},
                                    DTypeName{DType::kU64, "U64"},
                                    DTypeName{DType::kC64, "C64"}};

Tensor TensorFrom(std::string name, const json::object& entry) {
  Tensor tensor;
  tensor.name = std::move(name);
  const std::string dtype = TextOf(Field(entry, "dtype"), "dtype");
  const auto known = std::find_if(kDTypeNames.begin(), kDTypeNames.end(),
                                  [&](const DTypeName& n) { return dtype == n.text; });
  if (known == kDTypeNames.end()) throw Fail(Code::kDataLoss, "dtype {} is not known", dtype);
  tensor.dtype = known->dtype;
  uint64_t elements = 1;
  for (const json::value& dim : ArrayOf(Field(entry, "shape"), "shape")) {
    const uint64_t size = NumberOf(dim, "shape");
    if (size > INT64_MAX || __builtin_mul_overflow(elements, size, &elements)) {
      throw Fail(Code::kDataLoss, "the shape is too large");
    }
    tensor.shape.push_back(static_cast<int64_t>(size));
  }
  const json::array& offsets = ArrayOf(Field(entry, "data_offsets"), "data_offsets");
  if (offsets.size() != 2) throw Fail(Code::kDataLoss, "{} data_offsets", offsets.size());
  tensor.begin = NumberOf(offsets[0], "data_offsets");
  tensor.end = NumberOf(offsets[1], "data_offsets");
  uint64_t bytes = 0;
  const bool is_huge = __builtin_mul_overflow(elements, ItemSize(tensor.dtype), &bytes);
  if (is_huge || tensor.end < tensor.begin || tensor.bytes() != bytes) {
    throw Fail(Code::kDataLoss, "bytes {} to {}, the shape needs {}", tensor.begin, tensor.end,
               bytes);
  }
  return tensor;
}

// Returns true if the file looks like a pickle with a protocol number: it begins with PROTO and the
// number, and ends with STOP.
bool IsPickle(const File& file) {
  constexpr uint8_t kProto = 0x80;
  constexpr uint8_t kProtocolMax = 5;
  std::array<uint8_t, 2> begin{};
  uint8_t end = 0;
  file.ReadAt(0, std::as_writable_bytes(std::span(begin)));
  file.ReadAt(file.Size() - 1, std::as_writable_bytes(std::span(&end, 1)));
  return begin[0] == kProto && begin[1] <= kProtocolMax && end == '.';
}

}  // namespace

std::string HeaderOf(const std::vector<Tensor>& tensors,
                     const std::map<std::string, std::string>& metadata) {
  json::object header;
  if (!metadata.empty()) {
    json::object& entries = header["__metadata__"].emplace_object();
    for (const auto& [name, text] : metadata) entries[name] = text;
  }
  for (const Tensor& tensor : tensors) {
    json::object& entry = header[tensor.name].emplace_object();
    const auto known = std::find_if(kDTypeNames.begin(), kDTypeNames.end(),
                                    [&](const DTypeName& n) { return tensor.dtype == n.dtype; });
    entry["dtype"] = known->text;
    entry["shape"] = json::array(tensor.shape.begin(), tensor.shape.end());
    entry["data_offsets"] = {tensor.begin, tensor.end};
  }
  std::string text = json::serialize(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kHeaderBytesMax) {
    throw Fail(Code::kResourceExhausted,
               "{} tensors need a header of {} bytes in one file, and readers take at most {}",
               tensors.size(), text.size(), kHeaderBytesMax);
  }
  const uint64_t length = text.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  return bytes + text;
}

Header ReadHeader(const File& file) {
  const uint64_t size = file.Size();
  uint64_t length = 0;
  if (size < sizeof(length)) {
    throw Fail(Code::kDataLoss, "{}: a file of {} bytes is no snapshot", file.path(), size);
  }
  file.ReadAt(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > kHeaderBytesMax || length > size - sizeof(length)) {
    if (IsPickle(file)) {
      throw Fail(
          Code::kFailedPrecondition,
          "{}: it looks like a pickle, as MXNet writes them. A pickle is code, and is never read; "
          "save and save_optimizer_states write what can be",
          file.path());
    }
    throw Fail(Code::kDataLoss, "{}: a header of {} bytes in a file of {}", file.path(), length,
               size);
  }
  std::string text(length, '\0');
  file.ReadAt(sizeof(length), std::as_writable_bytes(std::span(text)));
  Header header;
  header.data_begin = sizeof(length) + length;
  for (const auto& [name, value] : ParseObject(text, file.path())) {
    const std::string key(name.data(), name.size());
    try {
      const json::object& entry = ObjectOf(value, key);
      if (key != "__metadata__") {
        header.tensors.push_back(TensorFrom(key, entry));
        continue;
      }
      for (const auto& [field, field_text] : entry) {
        header.metadata[std::string(field.data(), field.size())] = TextOf(field_text, key);
      }
    } catch (const Error& error) {
      throw Fail(Code::kDataLoss, "{}: tensor '{}': {}", file.path(), key, error.what());
    }
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const Tensor& a, const Tensor& b) { return a.begin < b.begin; });
  uint64_t at = 0;
  for (const Tensor& tensor : header.tensors) {
    if (tensor.begin != at) {
      throw Fail(Code::kDataLoss, "{}: tensor '{}' begins at byte {}, the one before it ends at {}",
                 file.path(), tensor.name, tensor.begin, at);
    }
    at = tensor.end;
  }
  if (at != size - header.data_begin) {
    throw Fail(Code::kDataLoss, "{}: {} bytes of tensors, the header says {}", file.path(),
               size - header.data_begin, at);
  }
  return header;
}

}  // namespace tkv::checkpoint
