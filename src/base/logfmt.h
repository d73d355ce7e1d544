// Events as lines of fields, `key=value` with blanks between them (logfmt): read by people, and
// taken apart by tools.

#pragma once

#include <string>
#include <string_view>

#include "base/format.h"

namespace tkv {

bool IsUtf8(std::string_view text);

// Text without control characters but \n and \t, and without bytes that are no UTF-8: those become \xNN.
// What comes from users and peers cannot command a terminal.
std::string Printable(std::string_view text);
// The same in one line: \n and \t stand there as they do here.
std::string Escaped(std::string_view text);

// A value of a field: as it is, or in quotes where it is empty or has blanks, quotes or `=`.
std::string FieldValue(std::string_view text);

// The fields of one event, in the order in which they are added.
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

// `event=NAME` and its fields.
inline Fields EventFields(std::string_view name) { return Fields().Add("event", name); }

}  // namespace tkv
