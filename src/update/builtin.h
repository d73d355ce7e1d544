// Provides the built-in optimizers, as programs.

#pragma once

#include <string_view>

#include "tkv/program.h"

namespace tkv {

// Returns the program of a built-in optimizer.
//   throws  kNotFound (the error lists the built-in optimizers)
Program BuiltinProgram(std::string_view name);

// Returns the text of a built-in optimizer, with its comments; "" if there is none of that name.
std::string_view BuiltinText(std::string_view name);

}  // namespace tkv
