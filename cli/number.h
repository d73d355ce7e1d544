// Numbers as text.

#pragma once

#include <string>

namespace tkv::cli {

// The shortest digits that give the same number: "0.1", "inf".
std::string NumberText(double number);

}  // namespace tkv::cli
