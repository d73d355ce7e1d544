// Text made of parts.  The only place that names the formatting library, whose own code is compiled
// once, in format.cc: compiled with each of its users it was half of the time that a build took.

#pragma once

#include <fmt/core.h>

#include <string>
#include <type_traits>
#include <utility>

#include "tkv/error.h"

namespace tkv {

template <typename... Args>
using FormatString = fmt::format_string<Args...>;

std::string FormatValues(fmt::string_view text, fmt::format_args values);

// Checked when it is compiled; the text is that of std::format.
template <typename... Args>
std::string Format(FormatString<Args...> text, Args&&... args) {
  return FormatValues(text, fmt::make_format_args(args...));
}

// The values with `between` between them.
template <typename Range>
std::string Join(const Range& values, const char* between) {
  std::string text;
  bool is_first = true;
  for (const auto& value : values) {
    if (!std::exchange(is_first, false)) text += between;
    text += Format("{}", value);
  }
  return text;
}

// `throw Fail(Code::kNotFound, "pull '{}': no such key", key)`.
template <typename... Args>
Error Fail(Code code, FormatString<Args...> text, Args&&... args) {
  return {code, FormatValues(text, fmt::make_format_args(args...))};
}

// Errors of f begin with name(), a text; an empty one changes nothing.
template <typename Name, typename F>
std::invoke_result_t<F&> NamedBy(Name name, F f) {
  try {
    return f();
  } catch (const Error& error) {
    const std::string text = name();
    if (text.empty()) throw;
    throw Fail(error.code(), "{}: {}", text, error.what());
  }
}

}  // namespace tkv
