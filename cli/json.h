// The output of `--json`: one object per line. docs/cli.md lists the objects and their members.

#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tkv::cli {

// The output format of a subcommand.
enum class Form : uint8_t { kText, kJson };

// Returns a text as a JSON string, with its quotes.  Bytes that are no valid UTF-8 become U+FFFD.
std::string JsonText(std::string_view text);
// Returns the text with U+FFFD in place of bytes that are no valid UTF-8.
std::string Utf8(std::string_view text);

class JsonObject {
 public:
  JsonObject() = default;
  // An object for a line of its own; its member "event" names its kind.
  explicit JsonObject(std::string_view event) { Add("event", event); }

  // Adds a member.  The name must need no JSON escapes.  Invalid UTF-8 becomes U+FFFD.  A number
  // that is not finite becomes null.
  JsonObject& Add(std::string_view name, std::string_view text);
  JsonObject& Add(std::string_view name, const char* text) {
    return Add(name, std::string_view(text));
  }
  JsonObject& Add(std::string_view name, double number);
  JsonObject& Add(std::string_view name, bool flag) {
    return AddRaw(name, flag ? "true" : "false");
  }
  template <std::integral Number>
  JsonObject& Add(std::string_view name, Number number) {
    return AddRaw(name, std::to_string(number));
  }
  JsonObject& Add(std::string_view name, const JsonObject& object) {
    return AddRaw(name, object.ToText());
  }
  JsonObject& Add(std::string_view name, const std::vector<std::string>& texts);
  JsonObject& Add(std::string_view name, const std::vector<double>& numbers);
  JsonObject& Add(std::string_view name, const std::vector<JsonObject>& objects);

  // Adds the members of another object, given as JSON text.
  JsonObject& AddMembersOf(std::string_view object);

  std::string ToText() const { return "{" + members_ + "}"; }

 private:
  JsonObject& AddRaw(std::string_view name, std::string_view value);

  std::string members_;
};

// Prints the object as a line on stdout and flushes.
void Print(const JsonObject& object);

}  // namespace tkv::cli
