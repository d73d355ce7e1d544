// The boundary between C and C++: checks arguments from C, and lets no exception leave the library.

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

// Returns the code of the exception that is being handled.  If `error` is not null, also sets
// *error.
tkv_code Caught(tkv_error** error);

// Runs f and returns TKV_OK, or the code of the exception that f throws.
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

// Throws the error that a callback has returned, and releases it; null is no error.
void ThrowError(tkv_error* error);

// ---- pointers

[[noreturn]] void ThrowNull(const char* verb, const char* what);
[[noreturn]] void ThrowTooMany(size_t count, const char* verb, const char* what);
// Throws if the pointer is null.
//   throws  kInvalidArgument  naming the argument that is null
template <typename Pointer>
void CheckNotNull(Pointer* pointer, const char* verb, const char* what) {
  if (pointer == nullptr) ThrowNull(verb, what);
}

// Returns the C++ object of a handle.
template <typename Handle>
auto& Core(Handle* handle, const char* verb, const char* what) {
  CheckNotNull(handle, verb, what);
  return handle->core;
}

// Returns the text.
//   throws  kInvalidArgument  null, or no UTF-8
std::string_view Text(const char* text, const char* verb, const char* what);

// ---- lists

// Returns the caller's array as a span.
//   throws  kInvalidArgument  null although `count` is not 0, or more items than memory can have
template <typename Item>
std::span<const Item> List(const Item* items, size_t count, const char* verb, const char* what) {
  if (count > 0) CheckNotNull(items, verb, what);
  constexpr size_t kItemBytes =
      sizeof(Item);  // NOLINT(bugprone-sizeof-expression): of pointers, too
  if (count > PTRDIFF_MAX / kItemBytes) ThrowTooMany(count, verb, what);
  return {items, count};
}

// ---- structs that begin with their size

// Largest struct that a later version may have.  A larger size is taken for an error of the caller.
inline constexpr size_t kStructBytesMax = 4096;

// The size of a struct in its first version.  If a field is added, specialise this with the old
// size.
template <typename Struct>
inline constexpr size_t kFirstBytes = sizeof(Struct);

struct StructBytes {
  size_t first, known, alignment;
};

// Checks the size of a caller's struct.
//   throws  kInvalidArgument  a size that no version has, or unknown bytes that are not zero
void CheckStruct(const void* given, size_t size, const StructBytes& bytes, const char* verb,
                 const char* what);

// Copies the caller's struct.  Fields that the caller's version does not have are zero.
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

// The same, but null stands for a struct with all fields zero.
template <typename Struct>
Struct ReadOr(const Struct* given, const char* verb, const char* what) {
  return given == nullptr ? Struct{sizeof(Struct)} : Read(given, verb, what);
}

// Copies as much of `result` to the caller's struct as that has room for.
template <typename Struct>
void Write(Struct result, Struct* out) {
  result.size = out->size;
  std::memcpy(out, &result, std::min(out->size, sizeof(Struct)));
}

}  // namespace tkv::c_api
