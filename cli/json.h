// What `--json` prints: one object in each line.  docs/cli.md lists them and their members.

#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tkv::cli {

// How a subcommand prints what it has to say.
enum class Form : uint8_t { kText, kJson };

// A text as JSON has it, with its quotes.  Bytes that are no UTF-8 become U+FFFD.
std::string JsonText(std::string_view text);

class JsonObject {
 public:
  JsonObject() = default;
  // One that stands in a line of its own, and says what it tells of.
  explicit JsonObject(std::string_view event) { Add("event", event); }

  // Adds a member; the name has no character that JSON escapes.  Bytes that are no UTF-8 become
  // U+FFFD, a number that is not finite null.
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

  // Adds the members of another object, which is in JSON already.
  JsonObject& AddMembersOf(std::string_view object);

  std::string ToText() const { return "{" + members_ + "}"; }

 private:
  JsonObject& AddRaw(std::string_view name, std::string_view value);

  std::string members_;
};

// A line on stdout, at once.
void Print(const JsonObject& object);

}  // namespace tkv::cli
