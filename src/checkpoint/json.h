// JSON documents from outside: their nesting is bounded, and every field is checked before it is
// used.

#pragma once

#include <boost/json/fwd.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>

namespace tkv::checkpoint {

namespace json = boost::json;

// Parses a JSON object.  Accepts strings that are not UTF-8; TextOf then refuses them with an error
// that shows them.
//   file    its name, for errors
//   throws  kDataLoss  the text is no JSON object, or nests deeper than 16
json::object ParseObject(std::string_view text, const std::string& file);
// Returns a field of an object; the functions below return its value.
//   throws  kDataLoss  the field is missing, has another type, or is a string that is not UTF-8
const json::value& Field(const json::object& object, std::string_view name);
const json::object& ObjectOf(const json::value& value, std::string_view name);
const json::array& ArrayOf(const json::value& value, std::string_view name);
std::string TextOf(const json::value& value, std::string_view name);
uint64_t NumberOf(const json::value& value, std::string_view name);
bool BoolOf(const json::value& value, std::string_view name);

}  // namespace tkv::checkpoint
