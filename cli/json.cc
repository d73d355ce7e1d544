#include "json.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "number.h"

namespace tkv::cli {
namespace {

// Returns the length of the UTF-8 character at the beginning of a text; 0 if there is no valid one.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t size = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (size == 0 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Excludes overlong forms, surrogates and code points above U+10FFFF.
  const bool is_excluded = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) ||
                           (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F);
  return is_excluded ? 0 : size;
}

// JSON has no infinity and no NaN; both become null.
std::string JsonNumber(double number) {
  return std::isfinite(number) ? NumberText(number) : "null";
}

template <typename Values, typename ToText>
std::string ArrayText(const Values& values, const ToText& to_text) {
  std::string text = "[";
  for (const auto& value : values) {
    if (text.size() > 1) text += ",";
    text += to_text(value);
  }
  text += "]";
  return text;
}

}  // namespace

std::string JsonText(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const size_t size = CharacterBytes(text);
    const char c = text[0];
    if (size == 0) {
      quoted += "\xEF\xBF\xBD";
    } else if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (size == 1 && (c < ' ' || c == 0x7F)) {
      std::array<char, 7> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\u%04x", static_cast<unsigned>(c));
      quoted += escaped.data();
    } else {
      quoted += text.substr(0, size);
    }
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return quoted + "\"";
}

std::string Utf8(std::string_view text) {
  std::string valid;
  while (!text.empty()) {
    const size_t size = CharacterBytes(text);
    valid += size == 0 ? "\xEF\xBF\xBD" : text.substr(0, size);
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return valid;
}

JsonObject& JsonObject::Add(std::string_view name, std::string_view text) {
  return AddRaw(name, JsonText(text));
}

JsonObject& JsonObject::Add(std::string_view name, double number) {
  return AddRaw(name, JsonNumber(number));
}

JsonObject& JsonObject::Add(std::string_view name, const std::vector<std::string>& texts) {
  return AddRaw(name, ArrayText(texts, JsonText));
}

JsonObject& JsonObject::Add(std::string_view name, const std::vector<double>& numbers) {
  return AddRaw(name, ArrayText(numbers, JsonNumber));
}

JsonObject& JsonObject::Add(std::string_view name, const std::vector<JsonObject>& objects) {
  return AddRaw(name, ArrayText(objects, [](const JsonObject& one) { return one.ToText(); }));
}

JsonObject& JsonObject::AddMembersOf(std::string_view object) {
  object.remove_prefix(1);  // the braces
  object.remove_suffix(1);
  if (!members_.empty() && !object.empty()) members_ += ",";
  members_ += object;
  return *this;
}

JsonObject& JsonObject::AddRaw(std::string_view name, std::string_view value) {
  if (!members_.empty()) members_ += ",";
  members_.append("\"").append(name).append("\":").append(value);
  return *this;
}

void Print(const JsonObject& object) {
  std::puts(object.ToText().c_str());
  std::fflush(stdout);
}

}  // namespace tkv::cli
