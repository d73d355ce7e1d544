// What this build is, and the options that it reads.

#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tkv/kvstore.h"

namespace tkv {

// "0.1.0"
const char* Version() noexcept;

// The cores that this process may use, by its affinity and its control groups.
int Cores();

struct OptionInfo {
  const char* name;         // of the argument to create()
  const char* environment;  // variable that is read where the argument is not given
  const char* unit;
  const char* default_text;
  const char* help;
};

// The one table of options: documentation and `tkv config` are made from it.
std::span<const OptionInfo> OptionTable() noexcept;

// The defaults with the environment applied.
//   throws  kInvalidArgument  naming the variable that cannot be read
StoreOptions OptionsFromEnvironment();

// "; did you mean 'x'?" for the end of an error about a word that is none of the names; "" where no
// name is near.
std::string DidYouMean(std::string_view word, std::span<const std::string_view> names);

// Lines "name = value" about this build and machine: version, instruction sets, cores, cache,
// options in force.
std::string ConfigText();

}  // namespace tkv
