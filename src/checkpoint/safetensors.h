// The safetensors format: eight bytes of length, a JSON header, the tensors one behind the other.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file.h"
#include "tkv/dtype.h"

namespace tkv::checkpoint {

struct Tensor {
  std::string name;
  DType dtype{};
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, from the first one behind the header

  uint64_t bytes() const { return end - begin; }
};

inline constexpr uint64_t kHeaderBytesMax = 100'000'000;  // as other readers have it

// The length and the header of a file of these tensors, which lie one behind the other.
//   throws  kResourceExhausted  nobody would read so many
std::string HeaderOf(const std::vector<Tensor>& tensors,
                     const std::map<std::string, std::string>& metadata);

struct Header {
  std::vector<Tensor> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // offset in the file
};

// Reads the header of a file and checks all of it: known dtypes, sizes that fit their shapes, no
// holes, no overlaps, nothing behind the end.
//   throws  kDataLoss  naming the file and what is wrong
Header ReadHeader(const File& file);

}  // namespace tkv::checkpoint
