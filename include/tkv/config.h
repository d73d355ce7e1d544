// The version of this build, and the table of options that it reads.

#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tkv/api.h"
#include "tkv/options.h"

namespace tkv {

// "0.1.0"
TKV_API const char* Version() noexcept;

// Returns how many cores this process may use, by its CPU affinity and its control groups.
TKV_API int Cores();

struct OptionInfo {
  enum class Kind { kNumber, kDuration, kFlag, kText };
  // The stores on which the option has an effect: all, those of several workers, or those whose
  // workers are separate processes.
  enum class Scope { kAny, kDistributed, kProcesses };

  const char* name;         // the argument of create(), and the line of `tkv config`
  const char* environment;  // the variable that is read if the argument is missing
  const char* flag;         // of tkv launch, tkv server and tkv head; "": they have their own
  const char* unit;         // of a number; "folder" of a text that is one
  const char* default_text;
  const char* help;
  Kind kind;
  Scope scope;
  std::array<std::string_view, 5> words = {};  // allowed texts; all empty: any text
};

// The one table of options.  Parsing, environment variables, documentation, `tkv config`, command
// flags and the arguments of create() are all made from it.
TKV_API std::span<const OptionInfo> OptionTable() noexcept;

// Sets the option `name` to the value that `text` says.  A duration longer than a century becomes a
// century.
//   throws  kInvalidArgument  no such option, naming the nearest; a text that does not fit it
TKV_API void SetOption(StoreOptions* options, std::string_view name, std::string_view text);
// An argument of create() by name, as bindings for other languages pass it: an option of the table,
// or "url", "token_file", "token", "bootstrap", "rank" or "num_workers".
struct NamedText {
  std::string_view name;
  std::string_view text;
};
// Sets these arguments for a store of type `type`, or those of connect() for "connect".
//   throws  kInvalidArgument  as SetOption, and if an argument has no effect on such a store
TKV_API void SetArguments(StoreOptions* options, std::string_view type,
                          std::span<const NamedText> arguments);
// Returns the current value of an option as the text that SetOption would take.
TKV_API std::string OptionText(const StoreOptions& options, std::string_view name);
// Returns the same options with each duration cut to a century.
//   throws  kInvalidArgument  naming the option whose value is out of range
TKV_API StoreOptions CheckedOptions(const StoreOptions& options);

// Returns the default options, changed by the environment variables.
//   throws  kInvalidArgument  naming the variable that cannot be read
TKV_API StoreOptions OptionsFromEnvironment();

// Returns true if `type`, in upper or lower case, names a store of several workers.
TKV_API bool IsDistributed(std::string_view type);
// Returns true if `type` names a store of one process.
TKV_API bool IsLocal(std::string_view type);
// Returns true if keys of such a store are asynchronous unless Init says otherwise.
TKV_API bool IsAsync(std::string_view type);

// Returns a sentence for each variable TKV_* of the environment that nothing reads, and for each
// variable of MXNet that has no effect here.
TKV_API std::vector<std::string> UnknownVariables();

// Returns "; did you mean 'x'?" for the end of an error about an unknown word; "" if none of the
// names is similar.
TKV_API std::string DidYouMean(std::string_view word, std::span<const std::string_view> names);

// Returns lines "name = value" about this build and machine: version, instruction sets, cores,
// cache, options in force.
TKV_API std::string ConfigText();

}  // namespace tkv
