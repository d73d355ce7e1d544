// Writes one array to a file that other programs read: .npy or .safetensors.

#pragma once

#include <string>

#include "tkv/ndarray.h"

namespace tkv::cli {

// Checks that the file's name ends in .npy or .safetensors.
//   throws  kInvalidArgument  another ending
void CheckArrayFile(const std::string& path);
// Writes the array to the file.  After a failure the path never holds a partial file.
//   throws  kInvalidArgument (the format lacks this dtype), kUnavailable (the system's error)
void WriteArrayFile(const std::string& path, const std::string& name, const NDArray& array);

}  // namespace tkv::cli
