#include "c_api/boundary.h"

#include <cxxabi.h>

#include <exception>
#include <new>

#include "base/logfmt.h"
#include "c_api/handles.h"

namespace tkv::c_api {
namespace {

tkv_code Tell(tkv_error** error, Code code, const char* message) {
  const auto number = static_cast<tkv_code>(code);
  if (error != nullptr) *error = tkv_error_create(number, message);
  return number;
}

}  // namespace

tkv_code Caught(tkv_error** error) {
  try {
    throw;
  } catch (const Error& caught) {
    return Tell(error, caught.code(), caught.what());
  } catch (const std::bad_alloc&) {
    return Tell(error, Code::kResourceExhausted, "no memory for what the call needs");
  } catch (const std::exception& caught) {
    return Tell(error, Code::kInternal, caught.what());
  } catch (abi::__forced_unwind&) {
    throw;  // the thread is being cancelled; C++ requires rethrowing
  } catch (...) {
    return Tell(error, Code::kInternal, "an exception that says nothing");
  }
}

void ThrowError(tkv_error* error) {
  if (error == nullptr) return;
  const Error thrown(static_cast<Code>(error->code), error->message);
  tkv_error_release(error);
  throw thrown;
}

void ThrowNull(const char* verb, const char* what) {
  throw Fail(Code::kInvalidArgument, "{}: {} is null", verb, what);
}

void ThrowTooMany(size_t count, const char* verb, const char* what) {
  throw Fail(Code::kInvalidArgument, "{}: {} has {} entries, more than memory can have", verb, what,
             count);
}

std::string_view Text(const char* text, const char* verb, const char* what) {
  CheckNotNull(text, verb, what);
  if (IsUtf8(text)) return text;
  throw Fail(Code::kInvalidArgument, "{}: {} '{}' is no UTF-8", verb, what, Escaped(text));
}

void CheckStruct(const void* given, size_t size, const StructBytes& bytes, const char* verb,
                 const char* what) {
  if (size < bytes.first || size > kStructBytesMax || size % bytes.alignment != 0) {
    throw Fail(Code::kInvalidArgument, "{}: {} has size {}, {} is needed: TKV_INIT sets it", verb,
               what, size, bytes.known);
  }
  if (size <= bytes.known) return;
  const std::span all(static_cast<const unsigned char*>(given), size);
  const auto unknown = all.subspan(bytes.known);
  if (std::all_of(unknown.begin(), unknown.end(), [](unsigned char byte) { return byte == 0; }))
    return;
  throw Fail(Code::kInvalidArgument,
             "{}: {} has fields beyond byte {} that this version of the library does not know",
             verb, what, bytes.known);
}

}  // namespace tkv::c_api
