// What somebody may have meant who has misspelt a name.

#pragma once

#include <span>
#include <string_view>

namespace tkv {

// The one of the names that is fewest edits (insert, delete, replace, swap neighbours) away from
// `word`, at most a third of its length; where none is, the shortest that has the word in it; "" where
// there is none.
std::string_view Nearest(std::string_view word, std::span<const std::string_view> names);

}  // namespace tkv
