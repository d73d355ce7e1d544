// Environment variables of the processes of a launched job.

#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

namespace tkv::cli {

using Variables = std::map<std::string, std::string>;  // by name

// Returns the variables set in all processes.  "NAME" has this process's value, "NAME=VALUE" its
// own.  Sets those of TensorKV in this process, too, because the launcher runs the head.
//   throws  kInvalidArgument  a variable that is not set here, or that the launcher itself sets
Variables VariablesOfAll(std::span<const std::string> texts);

// Returns this process's variables; for another host only those of TensorKV.
Variables OwnVariables(bool is_for_another_host);

// Returns the failpoints marked "again".  The others apply only to a process's first incarnation.
std::string OfLaterLives(const std::string& failpoints);

// Returns "NAME=VALUE" for each.
std::vector<std::string> TextsOf(const Variables& variables);

// Returns, each behind a space, the variables that a process started by hand needs to take its
// place.
std::string JoiningVariables(std::span<const std::string> texts);

}  // namespace tkv::cli
