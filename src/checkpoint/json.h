// JSON documents of others: bounded, and every field is looked at before it is used.

#pragma once

#include <boost/json/fwd.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>

namespace tkv::checkpoint {

namespace json = boost::json;

// Takes texts that are not UTF-8, too: TextOf refuses them, and its error shows them.
//   throws  kDataLoss  `file` is no JSON object, or nests deeper than 16
json::object ParseObject(std::string_view text, const std::string& file);
// A field of an object.
//   throws  kDataLoss  it is missing, or something else, or a text that is not UTF-8
const json::value& Field(const json::object& object, std::string_view name);
const json::object& ObjectOf(const json::value& value, std::string_view name);
const json::array& ArrayOf(const json::value& value, std::string_view name);
std::string TextOf(const json::value& value, std::string_view name);
uint64_t NumberOf(const json::value& value, std::string_view name);
bool BoolOf(const json::value& value, std::string_view name);

}  // namespace tkv::checkpoint
