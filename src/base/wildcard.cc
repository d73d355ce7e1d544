#include "base/wildcard.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace tkv {
namespace {

// Removes the first character from a text that is not empty, and returns it.  A byte that belongs
// to no character gets a number above those of Unicode.
uint32_t TakeCharacter(std::string_view* text) {
  const auto byte_at = [&](size_t i) { return static_cast<uint8_t>((*text)[i]); };
  const uint8_t first = byte_at(0);
  const auto ones = static_cast<size_t>(std::countl_one(first));
  const size_t length = ones == 0 ? 1 : ones;
  uint32_t character = first & (0x7FU >> ones);
  bool is_whole = ones != 1 && length <= 4 && length <= text->size();
  for (size_t i = 1; is_whole && i < length; ++i) {
    is_whole = (byte_at(i) & 0xC0) == 0x80;
    character = character << 6 | (byte_at(i) & 0x3FU);
  }
  text->remove_prefix(is_whole ? length : 1);
  return is_whole ? character : 0x110000U + first;
}

// A set of characters: the pattern between a `[` and its `]`.
struct Set {
  std::string_view characters;
  bool is_negated = false;
  // The length in the pattern, including the brackets.
  size_t length = 0;

  bool Has(uint32_t character) const {
    std::string_view rest = characters;
    while (!rest.empty()) {
      const uint32_t low = TakeCharacter(&rest);
      uint32_t high = low;
      if (rest.size() > 1 && rest[0] == '-') {
        rest.remove_prefix(1);
        high = TakeCharacter(&rest);
      }
      if (low <= character && character <= high) return true;
    }
    return false;
  }
};

// Returns the set at the beginning of a pattern that begins with `[`, or nothing if there is none.
std::optional<Set> SetOf(std::string_view pattern) {
  Set set;
  set.is_negated = pattern.substr(1).starts_with('!');
  const size_t begin = set.is_negated ? 2 : 1;
  // A `]` in the first place is a member of the set.
  const size_t end = pattern.find(']', begin + 1);
  if (end == std::string_view::npos) return std::nullopt;
  set.characters = pattern.substr(begin, end - begin);
  set.length = end + 1;
  return set;
}

// Removes one character from the text, and the part that stands for it from the pattern.  Neither
// is empty, and the pattern does not begin with `*`.
//   returns  true if they match
bool TakeOne(std::string_view* pattern, std::string_view* text) {
  const uint32_t character = TakeCharacter(text);
  const char first = pattern->front();
  if (first == '[') {
    if (const auto set = SetOf(*pattern)) {
      pattern->remove_prefix(set->length);
      return set->Has(character) != set->is_negated;
    }
  }
  return TakeCharacter(pattern) == character || first == '?';
}

}  // namespace

bool MatchesWildcard(std::string_view pattern, std::string_view text) {
  // The pattern after its last `*`, and the text after the characters that this star matches.
  std::optional<std::string_view> behind_star;
  std::string_view text_behind_star;
  while (!text.empty() || !pattern.empty()) {
    if (pattern.starts_with('*')) {
      pattern.remove_prefix(1);
      behind_star = pattern;
      text_behind_star = text;
      continue;
    }
    if (!text.empty() && !pattern.empty() && TakeOne(&pattern, &text)) continue;
    if (!behind_star || text_behind_star.empty()) return false;
    // Let the star match one more character.
    TakeCharacter(&text_behind_star);
    pattern = *behind_star;
    text = text_behind_star;
  }
  return true;
}

}  // namespace tkv
