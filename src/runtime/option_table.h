// The table of options: what each is called, which member it sets, and which values it may have.

#pragma once

#include <string>
#include <string_view>

#include "tkv/config.h"

namespace tkv {

// What the environment says; null where that is nothing.
const char* Variable(const char* name);

// Sets an option; where the text does not fit, returns what would, "a whole number from 0 to 64".
//   throws  kInvalidArgument  no such option, naming the nearest
std::string TrySetOption(StoreOptions* options, std::string_view name, std::string_view text);

// Checks that what a program has set (what is neither the default nor the environment's) has an effect
// on a store of that type.
//   throws  kInvalidArgument  naming the option that has none
void CheckEffects(std::string_view type, const StoreOptions& options);

}  // namespace tkv
