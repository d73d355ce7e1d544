// Numbers as text.

#pragma once

#include <string>

namespace tkv::cli {

// Returns the shortest decimal text that parses to the same number: "0.1", "inf".
std::string NumberText(double number);

}  // namespace tkv::cli
