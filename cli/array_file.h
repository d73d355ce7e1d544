// One array in a file that others read: .npy or .safetensors.

#pragma once

#include <string>

#include "tkv/ndarray.h"

namespace tkv::cli {

//   throws  kInvalidArgument  the name ends in neither
void CheckArrayFile(const std::string& path);
// The file is there whole or not at all.
//   throws  kInvalidArgument (a dtype that the format does not have), kUnavailable (what the system says)
void WriteArrayFile(const std::string& path, const std::string& name, const NDArray& array);

}  // namespace tkv::cli
