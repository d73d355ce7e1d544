// The table of options: the names of each option, the member that it sets, and its allowed values.

#pragma once

#include <string>
#include <string_view>

#include "tkv/config.h"

namespace tkv {

// Sets an option.  If the text does not fit, returns the accepted form, such as "a whole number
// from 0 to 64".
//   throws  kInvalidArgument  no such option; the message names the nearest one
std::string TrySetOption(StoreOptions* options, std::string_view name, std::string_view text);

// Like the function of tkv/config.h, for another call than create().
//   verb  the first word of errors
StoreOptions CheckedOptions(std::string_view verb, const StoreOptions& options);

// Checks that every option which the program has set has an effect on a store of that type.
// Defaults and values from the environment are not checked.
//   throws  kInvalidArgument  an option without effect; the message names it
void CheckEffects(std::string_view type, const StoreOptions& options);

}  // namespace tkv
