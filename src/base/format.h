// Text formatting.  Only this header names the formatting library.  The library's code is compiled
// once, in format.cc: compiled with each user, it took half of the time of a build.

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

// Formats values as std::format does.  The format string is checked at compile time.
template <typename... Args>
std::string Format(FormatString<Args...> text, Args&&... args) {
  return FormatValues(text, fmt::make_format_args(args...));
}

// Returns the values as one text, separated by `between`.
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

// Makes an error to throw: `throw Fail(Code::kNotFound, "pull '{}': no such key", key)`.
template <typename... Args>
Error Fail(Code code, FormatString<Args...> text, Args&&... args) {
  return {code, FormatValues(text, fmt::make_format_args(args...))};
}

// Runs f and begins the message of its Error with name(), a text.  An empty text changes nothing.
template <typename Name, typename F>
std::invoke_result_t<F&> NamedBy(Name name, F f) {
  try {
    return f();
  } catch (const Error& error) {
    const std::string text = name();
    if (text.empty()) throw;
    throw error.WithMessage(Format("{}: {}", text, error.what()));
  }
}

}  // namespace tkv
