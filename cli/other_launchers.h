// Options of mpirun and torchrun that `tkv launch` has under another name, or does not need.

#pragma once

#include <string>
#include <string_view>

namespace tkv::cli {

// Returns the words to use instead of an option of another launcher, or "" for any other word.
//   word  as given: "-np", "--hostfile=h.txt"
std::string InsteadOf(std::string_view word);

}  // namespace tkv::cli
