// The variables of the processes of a launched job.

#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

namespace tkv::cli {

using Variables = std::map<std::string, std::string>;  // by name

// Those that all processes of the job have: "NAME" as it is here, or "NAME=VALUE".  The launcher, which
// has the head, gets those of TensorKV itself.
//   throws  kInvalidArgument  one that is not set here, or that the launcher itself says
Variables VariablesOfAll(std::span<const std::string> texts);

// What this process has; for another host only what is of TensorKV.
Variables OwnVariables(bool is_for_another_host);

// The failpoints that are asked for again: a rehearsed death is that of one life.
std::string OfLaterLives(const std::string& failpoints);

// "NAME=VALUE" of each.
std::vector<std::string> TextsOf(const Variables& variables);

// Of these the ones by which a process that is started by hand takes its place, each behind a space.
std::string JoiningVariables(std::span<const std::string> texts);

}  // namespace tkv::cli
