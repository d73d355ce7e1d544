// Patterns of names, with the rules of Python's fnmatch.fnmatchcase.

#pragma once

#include <string_view>

namespace tkv {

// Returns true if the pattern matches the whole text.  A character is a UTF-8 code point; a byte
// that belongs to none is a character by itself.
//   *        any characters, or none
//   ?        one character
//   [a-z_]   one of these: ranges and single characters; `]` counts where it comes first, `-` where
//            it comes first or last
//   [!a-z_]  one that is none of these
// Everything else stands for itself: `\` and `^`, and a `[` that no `]` follows.
//   takes  time proportional to length of the pattern * length of the text, at most
bool MatchesWildcard(std::string_view pattern, std::string_view text);

}  // namespace tkv
