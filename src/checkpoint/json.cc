#include "checkpoint/json.h"

#include <boost/json/parse.hpp>

#include "base/format.h"
#include "base/logfmt.h"

namespace tkv::checkpoint {
namespace {

Error Wrong(std::string_view name, const char* wanted) {
  return Fail(Code::kDataLoss, "'{}' is not {}", name, wanted);
}

}  // namespace

json::object ParseObject(std::string_view text, const std::string& file) {
  json::parse_options options;
  options.max_depth = 16;
  options.allow_invalid_utf8 = true;  // TextOf refuses them with a better message
  boost::system::error_code error;
  json::value value = json::parse({text.data(), text.size()}, error, {}, options);
  if (error || !value.is_object()) {
    throw Fail(Code::kDataLoss, "{}: not a JSON object{}{}", file, error ? ": " : "",
               error ? error.message() : "");
  }
  return std::move(value.as_object());
}

const json::value& Field(const json::object& object, std::string_view name) {
  const json::value* const field = object.if_contains({name.data(), name.size()});
  if (field == nullptr) throw Fail(Code::kDataLoss, "'{}' is missing", name);
  return *field;
}

const json::object& ObjectOf(const json::value& value, std::string_view name) {
  if (!value.is_object()) throw Wrong(name, "an object");
  return value.get_object();
}

const json::array& ArrayOf(const json::value& value, std::string_view name) {
  if (!value.is_array()) throw Wrong(name, "a list");
  return value.get_array();
}

std::string TextOf(const json::value& value, std::string_view name) {
  if (!value.is_string()) throw Wrong(name, "a string");
  std::string text(value.get_string().data(), value.get_string().size());
  if (!IsUtf8(text)) throw Fail(Code::kDataLoss, "'{}' is '{}', which is not UTF-8", name, text);
  return text;
}

uint64_t NumberOf(const json::value& value, std::string_view name) {
  if (value.is_uint64()) return value.get_uint64();
  if (value.is_int64() && value.get_int64() >= 0) return static_cast<uint64_t>(value.get_int64());
  throw Wrong(name, "a whole number");
}

bool BoolOf(const json::value& value, std::string_view name) {
  if (!value.is_bool()) throw Wrong(name, "true or false");
  return value.get_bool();
}

}  // namespace tkv::checkpoint
