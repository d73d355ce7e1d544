// Errors, texts and keys: handles that have no file of their own.

#include "c_api/handles.h"

#include <algorithm>
#include <new>

#include "tkv/config.h"

namespace tkv::c_api {
namespace {

constexpr Code kCodes[] = {
    Code::kCancelled,     Code::kInvalidArgument,   Code::kDeadlineExceeded,   Code::kNotFound,
    Code::kAlreadyExists, Code::kResourceExhausted, Code::kFailedPrecondition, Code::kAborted,
    Code::kOutOfRange,    Code::kUnimplemented,     Code::kInternal,           Code::kUnavailable,
    Code::kDataLoss,      Code::kUnauthenticated};

// tkv.h and error.h must use the same numbers.
static_assert(TKV_CANCELLED == int(Code::kCancelled) &&
              TKV_INVALID_ARGUMENT == int(Code::kInvalidArgument) &&
              TKV_DEADLINE_EXCEEDED == int(Code::kDeadlineExceeded) &&
              TKV_NOT_FOUND == int(Code::kNotFound) &&
              TKV_ALREADY_EXISTS == int(Code::kAlreadyExists) &&
              TKV_RESOURCE_EXHAUSTED == int(Code::kResourceExhausted) &&
              TKV_FAILED_PRECONDITION == int(Code::kFailedPrecondition) &&
              TKV_ABORTED == int(Code::kAborted) && TKV_OUT_OF_RANGE == int(Code::kOutOfRange) &&
              TKV_UNIMPLEMENTED == int(Code::kUnimplemented) &&
              TKV_INTERNAL == int(Code::kInternal) && TKV_UNAVAILABLE == int(Code::kUnavailable) &&
              TKV_DATA_LOSS == int(Code::kDataLoss) &&
              TKV_UNAUTHENTICATED == int(Code::kUnauthenticated));

bool IsCode(tkv_code number) {
  return std::find(std::begin(kCodes), std::end(kCodes), static_cast<Code>(number)) !=
         std::end(kCodes);
}

}  // namespace
}  // namespace tkv::c_api

using namespace tkv::c_api;

tkv_keys::tkv_keys(std::vector<tkv::Key> list) : owned(std::move(list)) {
  views.reserve(owned.size());
  for (const tkv::Key& key : owned) {
    views.push_back({key.is_string() ? key.text().c_str() : nullptr, key.number()});
  }
}

tkv_error* tkv_error_create(tkv_code code, const char* message) {
  try {
    return new tkv_error(IsCode(code) ? code : TKV_INTERNAL, message == nullptr ? "" : message);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
tkv_error* tkv_error_retain(tkv_error* error) { return Retain(error); }
void tkv_error_release(tkv_error* error) { Release(error); }
tkv_code tkv_error_code(const tkv_error* error) { return error == nullptr ? TKV_OK : error->code; }
const char* tkv_error_message(const tkv_error* error) {
  return error == nullptr ? "" : error->message.c_str();
}
const char* tkv_code_name(tkv_code code) {
  if (code == TKV_OK) return "OK";
  return IsCode(code) ? tkv::Name(static_cast<tkv::Code>(code)) : "";
}

void tkv_text_release(tkv_text* text) { delete text; }
const char* tkv_text_data(const tkv_text* text) {
  return text == nullptr ? "" : text->core.c_str();
}
size_t tkv_text_size(const tkv_text* text) { return text == nullptr ? 0 : text->core.size(); }

void tkv_keys_release(tkv_keys* keys) { delete keys; }
const tkv_key* tkv_keys_data(const tkv_keys* keys) {
  return keys == nullptr ? nullptr : keys->views.data();
}
size_t tkv_keys_size(const tkv_keys* keys) { return keys == nullptr ? 0 : keys->views.size(); }

const char* tkv_version(void) { return tkv::Version(); }
tkv_code tkv_config(tkv_text** text, tkv_error** error) {
  return Give(text, error, "config", [] { return tkv::ConfigText(); });
}
