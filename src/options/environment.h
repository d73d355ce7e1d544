// Values of environment variables.  No other file calls getenv.

#pragma once

#include <string>

namespace tkv {

// Returns the value of a variable, or null if it is not set or empty.
const char* Variable(const char* name);

// Returns the value of a variable that a job needs.
//   hint    ends the message of an error
//   throws  kInvalidArgument  it is not set
std::string NeedVariable(const char* name, const char* hint = "");

// Returns the whole number that a variable says; `fallback` if it is not set.
//   throws  kInvalidArgument  no whole number from `low` to `high`
int NumberVariable(const char* name, int fallback, int low, int high);
// Does the same for a variable that a job needs.
//   throws  kInvalidArgument  also if it is not set
int NeedNumberVariable(const char* name, int low, int high);

}  // namespace tkv
