// Formatted errors.  The only place that names the formatting library.

#pragma once

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <utility>

#include "tkv/error.h"

namespace tkv {

using fmt::format;

// `throw Fail(Code::kNotFound, "pull '{}': no such key", key)`.
template <typename... Args>
Error Fail(Code code, fmt::format_string<Args...> text, Args&&... args) {
  return {code, fmt::format(text, std::forward<Args>(args)...)};
}

}  // namespace tkv
