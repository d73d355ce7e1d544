// What stands between C and C++: no exception leaves the library, and what comes in is looked at.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/format.h"
#include "tkv/tkv.h"

namespace tkv::c_api {

// ---- errors

// The error that is being handled, as a code and, where the caller has room for it, an object.
tkv_code Caught(tkv_error** error);

// Runs f at the edge of the library.
template <typename F>
tkv_code Try(tkv_error** error, F f) {
  if (error != nullptr) *error = nullptr;
  try {
    f();
    return TKV_OK;
  } catch (...) {
    return Caught(error);
  }
}

// Throws what a callback of the caller's has returned, and releases it; null is no error.
void ThrowError(tkv_error* error);

// ---- pointers

[[noreturn]] void ThrowNull(const char* verb, const char* what);
[[noreturn]] void ThrowTooMany(size_t count, const char* verb, const char* what);
//   throws  kInvalidArgument  naming what is null
template <typename Pointer>
void CheckNotNull(Pointer* pointer, const char* verb, const char* what) {
  if (pointer == nullptr) ThrowNull(verb, what);
}

// What a handle of the caller's stands for.
template <typename Handle>
auto& Core(Handle* handle, const char* verb, const char* what) {
  CheckNotNull(handle, verb, what);
  return handle->core;
}

//   throws  kInvalidArgument  null, or no UTF-8
std::string_view Text(const char* text, const char* verb, const char* what);

// ---- lists

//   throws  kInvalidArgument  no pointer to so many, or more than memory can have
template <typename Item>
std::span<const Item> List(const Item* items, size_t count, const char* verb, const char* what) {
  if (count > 0) CheckNotNull(items, verb, what);
  constexpr size_t kItemBytes =
      sizeof(Item);  // NOLINT(bugprone-sizeof-expression): of pointers, too
  if (count > PTRDIFF_MAX / kItemBytes) ThrowTooMany(count, verb, what);
  return {items, count};
}

// ---- structs that begin with their size

// A caller of a later version may have so many bytes in a struct; more is no size but an accident.
inline constexpr size_t kStructBytesMax = 4096;

// What the first version of a struct had.  A field that is added leaves the size before it here.
template <typename Struct>
inline constexpr size_t kFirstBytes = sizeof(Struct);

struct StructBytes {
  size_t first, known, alignment;
};

//   throws  kInvalidArgument  a size that no version has, or bytes beyond those known that are not zero
void CheckStruct(const void* given, size_t size, const StructBytes& bytes, const char* verb,
                 const char* what);

// The struct of the caller as this version knows it, with zeros for what the caller's does not.
template <typename Struct>
Struct Read(const Struct* given, const char* verb, const char* what) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  CheckNotNull(given, verb, what);
  CheckStruct(given, given->size, {kFirstBytes<Struct>, sizeof(Struct), alignof(Struct)}, verb,
              what);
  Struct read{};
  std::memcpy(&read, given, std::min(given->size, sizeof(Struct)));
  return read;
}

// The same, where null stands for what nobody has set.
template <typename Struct>
Struct ReadOr(const Struct* given, const char* verb, const char* what) {
  return given == nullptr ? Struct{sizeof(Struct)} : Read(given, verb, what);
}

// Gives the caller as much of `result` as the caller's version has room for.
template <typename Struct>
void Write(Struct result, Struct* out) {
  result.size = out->size;
  std::memcpy(out, &result, std::min(out->size, sizeof(Struct)));
}

}  // namespace tkv::c_api
