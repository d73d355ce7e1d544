// Suggestions for misspelt names.

#pragma once

#include <span>
#include <string_view>

namespace tkv {

// Returns the name that the user of a misspelt `word` may have meant, or "".
// Prefers the name with the fewest edits (insert, delete, replace, swap neighbours): at most a
// third of the word's length, or one.  If there is none and the word has at least 4 letters,
// returns the shortest name that contains it.
std::string_view Nearest(std::string_view word, std::span<const std::string_view> names);

}  // namespace tkv
