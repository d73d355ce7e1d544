// Errors for lack of memory that say what the memory was for.

#pragma once

#include <exception>
#include <new>
#include <string_view>

#include "base/format.h"

namespace tkv {

// Runs f.  If memory is lacking, the error begins with the operation.
//   what  a verb, or a verb and a key
template <typename F>
auto NamedWhereMemoryEnds(std::string_view what, F f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    throw Fail(Code::kResourceExhausted, "{}: no memory for what it needs beside its arrays", what);
  } catch (const Error& error) {
    const std::string_view text = error.what();
    if (error.code() != Code::kResourceExhausted || text.starts_with(what)) throw;
    throw Fail(Code::kResourceExhausted, "{}: {}", what, text);
  }
}

// Returns an error that is made at the first call, for handlers that have no memory to make one.
inline const Error& NoMemoryLeft() {
  static const Error error(Code::kResourceExhausted, "there is no memory left");
  return error;
}

// Returns the exception that is being handled as an Error.  If memory was lacking, the message says
// for what.
inline Error ErrorNow(std::string_view what) {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Fail(Code::kResourceExhausted, "{}: no memory for what it needs beside its arrays",
                what);
  } catch (const std::exception& error) {
    return Fail(Code::kInternal, "{}: {}", what, error.what());
  } catch (...) {  // an interrupt that a binding throws may be of any type
    return Fail(Code::kCancelled, "{}: interrupted", what);
  }
}

// Like ErrorNow, and without memory for the message returns NoMemoryLeft.
inline Error ErrorNowAtLeast(std::string_view what) noexcept {
  try {
    return ErrorNow(what);
  } catch (const std::bad_alloc&) {
    return NoMemoryLeft();
  }
}

}  // namespace tkv
