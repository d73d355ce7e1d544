// The table of options: what each is called, which member it sets, and which values it may have.

#pragma once

#include <string>
#include <string_view>

#include "tkv/config.h"

namespace tkv {

// Sets an option; where the text does not fit, returns what would, "a whole number from 0 to 64".
//   throws  kInvalidArgument  no such option, naming the nearest
std::string TrySetOption(StoreOptions* options, std::string_view name, std::string_view text);

}  // namespace tkv
