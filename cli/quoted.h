// Texts as words of a shell.

#pragma once

#include <string>
#include <string_view>

namespace tkv::cli {

// Quotes a text with single quotes, for a shell in which only the single quote is special within
// them.
inline std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace tkv::cli
