// The safetensors format: eight bytes of length, a JSON header, then the tensors one after the
// other.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/file.h"
#include "tkv/dtype.h"

namespace tkv::checkpoint {

// The description of a tensor in a file.
struct Tensor {
  std::string name;
  DType dtype{};
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // byte offsets from the end of the header

  uint64_t bytes() const { return end - begin; }
};

inline constexpr uint64_t kHeaderBytesMax = 100'000'000;  // the limit of other readers

// Returns the length and the header of a file of these tensors, which follow one after the other.
//   throws  kResourceExhausted  the header would be larger than readers accept
std::string HeaderOf(const std::vector<Tensor>& tensors,
                     const std::map<std::string, std::string>& metadata);

// The content of a file's header.
struct Header {
  std::vector<Tensor> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // offset in the file
};

// Reads the header of a file and checks it completely.  Dtypes have to be known, sizes have to fit
// the shapes, and the tensors have to fill the file without holes or overlaps.
//   throws  kDataLoss  the message names the file and the fault
//           kFailedPrecondition  the file is a pickle
Header ReadHeader(const File& file);

}  // namespace tkv::checkpoint
