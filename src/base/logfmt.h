// Events as lines of `key=value` fields (logfmt), for people and for tools.

#pragma once

#include <string>
#include <string_view>

#include "base/format.h"

namespace tkv {

bool IsUtf8(std::string_view text);

// Returns the text with control characters other than \n and \t, and bytes that are not UTF-8,
// replaced by \xNN.  Text from users and peers can then send no commands to a terminal.
std::string Printable(std::string_view text);
// Returns the printable text in one line: \n and \t become a backslash and a letter.
std::string Escaped(std::string_view text);

// Returns a text as a field's value: in quotes if it is empty or has blanks, quotes, backslashes or
// `=`.
std::string FieldValue(std::string_view text);

// The fields of one event, in the order in which they were added.
class Fields {
 public:
  template <typename T>
  Fields& Add(std::string_view name, const T& value) {
    if (!text_.empty()) text_ += ' ';
    text_ += name;
    text_ += '=';
    text_ += FieldValue(Format("{}", value));
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Returns fields that begin with `event=NAME`.
inline Fields EventFields(std::string_view name) { return Fields().Add("event", name); }

}  // namespace tkv
