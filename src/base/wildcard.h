// Patterns of names, as Python's fnmatch.fnmatchcase has them.

#pragma once

#include <string_view>

namespace tkv {

// Returns true if the pattern matches the whole text.  A character is a code point of UTF-8; a byte that
// belongs to none is a character by itself.
//   *        any characters, or none
//   ?        one character
//   [a-z_]   one of these: ranges and single characters; `]` counts where it comes first, `-` where it
//            comes first or last
//   [!a-z_]  one that is none of these
// Everything else stands for itself: `\` and `^`, and a `[` that no `]` follows.
//   takes  time of at most length of the pattern * length of the text
bool MatchesWildcard(std::string_view pattern, std::string_view text);

}  // namespace tkv
