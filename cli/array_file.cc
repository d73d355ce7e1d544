#include "array_file.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>

#include "json.h"
#include "system.h"
#include "tkv/error.h"

namespace tkv::cli {
namespace {

constexpr size_t kAlignment = 64;  // of the values, in either format

bool IsNpy(const std::string& path) { return path.ends_with(".npy"); }

struct DTypeNames {
  DType dtype;
  const char* npy;  // null: the format does not have it
  const char* safetensors;
};
constexpr std::array<DTypeNames, 16> kNames = {{
    {DType::kF32, "<f4", "F32"},
    {DType::kF64, "<f8", "F64"},
    {DType::kF16, "<f2", "F16"},
    {DType::kBF16, nullptr, "BF16"},
    {DType::kI8, "|i1", "I8"},
    {DType::kU8, "|u1", "U8"},
    {DType::kI16, "<i2", "I16"},
    {DType::kI32, "<i4", "I32"},
    {DType::kI64, "<i8", "I64"},
    {DType::kBool, "|b1", "BOOL"},
    {DType::kF8E4M3FN, nullptr, "F8_E4M3"},
    {DType::kF8E5M2, nullptr, "F8_E5M2"},
    {DType::kU16, "<u2", "U16"},
    {DType::kU32, "<u4", "U32"},
    {DType::kU64, "<u8", "U64"},
    {DType::kC64, "<c8", "C64"},
}};
static_assert(kNames.size() == static_cast<size_t>(kLastDType) + 1);

const char* NameIn(bool npy, DType dtype) {
  const DTypeNames& names = kNames.at(static_cast<size_t>(dtype));
  return npy ? names.npy : names.safetensors;
}

template <typename Number>
std::string LittleEndian(Number number) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(Number); ++i) bytes += static_cast<char>(number >> 8 * i);
  return bytes;
}

std::string ShapeIn(const Shape& shape, bool npy) {
  std::string text(1, npy ? '(' : '[');
  for (const int64_t dim : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(dim);
  }
  if (npy && shape.rank() == 1) text += ',';
  text += npy ? ')' : ']';
  return text;
}

std::string HeaderOf(const std::string& path, const std::string& name, const NDArray& array) {
  const bool npy = IsNpy(path);
  const char* const dtype = NameIn(npy, array.dtype());
  if (dtype == nullptr) {
    throw Error(Code::kInvalidArgument, "get: " + path + ": this format has no " +
                                            Name(array.dtype()) + "; a .safetensors file has");
  }
  const std::string shape = ShapeIn(array.shape(), npy);
  std::string header;
  if (npy) {
    header.append("{'descr': '").append(dtype).append("', 'fortran_order': False, 'shape': ");
    header.append(shape).append(", }");
  } else {
    // A safetensors file cannot have an array with this name.  Snapshots rename it in the same way.
    const std::string key = name == "__metadata__" ? name + "#" : name;
    header.append("{").append(JsonText(key)).append(":{\"dtype\":\"").append(dtype);
    header.append("\",\"shape\":").append(shape).append(",\"data_offsets\":[0,");
    header.append(std::to_string(array.bytes())).append("]}}");
  }
  const size_t before = npy ? 10 : 8;
  while ((before + header.size() + 1) % kAlignment != 0) header += ' ';
  header += npy ? '\n' : ' ';
  if (npy) {
    return std::string("\x93NUMPY\x01\x00", 8) +
           LittleEndian(static_cast<uint16_t>(header.size())) + header;
  }
  return LittleEndian(static_cast<uint64_t>(header.size())) + header;
}

}  // namespace

void CheckArrayFile(const std::string& path) {
  if (IsNpy(path) || path.ends_with(".safetensors")) return;
  throw Error(Code::kInvalidArgument,
              "get: --out " + path + ": a name that ends in .npy or .safetensors is needed");
}

void WriteArrayFile(const std::string& path, const std::string& name, const NDArray& array) {
  const std::string header = HeaderOf(path, name, array);
  const std::string fresh = path + ".part-" + std::to_string(getpid());
  std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
  if (!file) Die("get: " + fresh);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  file.write(static_cast<const char*>(array.HostData()),
             static_cast<std::streamsize>(array.bytes()));
  file.close();
  if (!file) {
    const int error = errno;
    std::remove(fresh.c_str());
    errno = error;
    Die("get: " + path);
  }
  if (std::rename(fresh.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  std::remove(fresh.c_str());
  errno = error;
  Die("get: " + path);
}

}  // namespace tkv::cli
