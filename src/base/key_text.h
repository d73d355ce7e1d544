// The rule for texts that are keys: one that every language, file and tool can hold.

#pragma once

#include <string_view>

namespace tkv {

// Returns why a text can be no key, to follow its name in a message; null if it can be one.
// A key is UTF-8 without the character zero, of at most kKeyTextBytesMax bytes.
const char* WhyNoKey(std::string_view text);

}  // namespace tkv
