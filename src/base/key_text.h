// The rule for texts that are keys: every language, file format and tool can hold such a text.

#pragma once

#include <string_view>

namespace tkv {

// Returns the reason why a text cannot be a key, worded to follow its name in a message; null if it
// can be one.
// A key is UTF-8 without the character zero, of at most kKeyTextBytesMax bytes.
const char* WhyNoKey(std::string_view text);

}  // namespace tkv
