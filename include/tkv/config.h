// What this build is, and the options that it reads.

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

// The cores that this process may use, by its affinity and its control groups.
TKV_API int Cores();

struct OptionInfo {
  enum class Kind { kNumber, kDuration, kFlag, kText };
  // Which stores the option has an effect on: all, those of several workers, or those whose workers
  // are processes of their own.
  enum class Scope { kAny, kDistributed, kProcesses };

  const char* name;         // of the argument to create(), and of the line of `tkv config`
  const char* environment;  // variable that is read where the argument is not given
  const char* flag;         // of tkv launch, tkv server and tkv head; "" where those have their own
  const char* unit;         // of a number; "folder" of a text that is one
  const char* default_text;
  const char* help;
  Kind kind;
  Scope scope;
  std::array<std::string_view, 5> words = {};  // that a text may be; all empty: any text
};

// The one table of options: parsing, environment, documentation, `tkv config`, flags of the command
// and arguments of create() are made from it.
TKV_API std::span<const OptionInfo> OptionTable() noexcept;

// Sets the option of that name to what a text says; durations longer than a century are cut to it.
//   throws  kInvalidArgument  no such option, naming the nearest; a text that does not fit it
TKV_API void SetOption(StoreOptions* options, std::string_view name, std::string_view text);
// The arguments of create() by name, as other languages give them: options of the table, "url",
// "token_file", "token", "bootstrap", "rank" and "num_workers".
struct NamedText {
  std::string_view name;
  std::string_view text;
};
// Sets them for a store of that type.
//   throws  kInvalidArgument  as SetOption, and where an argument has no effect on such a store
TKV_API void SetArguments(StoreOptions* options, std::string_view type,
                          std::span<const NamedText> arguments);
// What SetOption would be given for the value in force.
TKV_API std::string OptionText(const StoreOptions& options, std::string_view name);
// The same options with durations cut to a century.
//   throws  kInvalidArgument  naming the option whose value is out of range
TKV_API StoreOptions CheckedOptions(const StoreOptions& options);

// The defaults with the environment applied.
//   throws  kInvalidArgument  naming the variable that cannot be read
TKV_API StoreOptions OptionsFromEnvironment();

// Whether KVStore::Create would make a store of several workers of that type, in any case.
TKV_API bool IsDistributed(std::string_view type);
// The same for a store of one process.
TKV_API bool IsLocal(std::string_view type);
// Whether its keys are asynchronous, where their init says nothing else.
TKV_API bool IsAsync(std::string_view type);

// A sentence for each variable TKV_* of the environment that nothing reads, and for each of MXNet
// that has no effect here.
TKV_API std::vector<std::string> UnknownVariables();

// "; did you mean 'x'?" for the end of an error about a word that is none of the names; "" where no
// name is near.
TKV_API std::string DidYouMean(std::string_view word, std::span<const std::string_view> names);

// Lines "name = value" about this build and machine: version, instruction sets, cores, cache,
// options in force.
TKV_API std::string ConfigText();

}  // namespace tkv
