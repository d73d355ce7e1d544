// Keys: a 64-bit integer or a UTF-8 string; 3 and "3" differ.

#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tkv/api.h"

namespace tkv {

inline constexpr size_t kKeyTextBytesMax = 1019;  // longest string key, in every store

// A key that refers to text owned by the caller.
struct TKV_API KeyView {
  bool is_string = false;
  int64_t number = 0;
  std::string_view text;

  KeyView(int64_t value) : number(value) {}  // NOLINT(google-explicit-constructor)
  KeyView(int value) : number(value) {}      // NOLINT(google-explicit-constructor)
  KeyView(std::string_view value)
      : is_string(true), text(value) {}  // NOLINT(google-explicit-constructor)
  KeyView(const char* value)
      : is_string(true), text(value) {}  // NOLINT(google-explicit-constructor)
  KeyView(const std::string& value)
      : is_string(true), text(value) {}  // NOLINT(google-explicit-constructor)

  bool operator==(const KeyView& other) const noexcept = default;
  std::string ToString() const;  // as messages show it: 3 or 'w3'; a long key is cut short
};

// A key that owns its text.
class Key {
 public:
  explicit Key(const KeyView& view)
      : is_string_(view.is_string), number_(view.number), text_(view.text) {}
  bool is_string() const noexcept { return is_string_; }
  int64_t number() const noexcept { return number_; }
  const std::string& text() const noexcept { return text_; }
  KeyView view() const noexcept { return is_string_ ? KeyView(text_) : KeyView(number_); }
  auto operator<=>(const Key&) const noexcept = default;

 private:
  bool is_string_;
  int64_t number_;
  std::string text_;
};

}  // namespace tkv
