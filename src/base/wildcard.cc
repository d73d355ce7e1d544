#include "base/wildcard.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace tkv {
namespace {

// Takes the first character off a text that is not empty.  A byte that belongs to no character is beyond
// those of Unicode.
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
  size_t length = 0;  // in the pattern, with the brackets

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

// Returns nothing if the pattern, which begins with `[`, has no set in front.
std::optional<Set> SetOf(std::string_view pattern) {
  Set set;
  set.is_negated = pattern.substr(1).starts_with('!');
  const size_t begin = set.is_negated ? 2 : 1;
  const size_t end = pattern.find(']', begin + 1);  // the first character is no end
  if (end == std::string_view::npos) return std::nullopt;
  set.characters = pattern.substr(begin, end - begin);
  set.length = end + 1;
  return set;
}

// Takes one character off the text, and the part for it off the pattern, which does not begin with `*`.
// Neither is empty.
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
  // The pattern behind its last `*`, and the text behind the characters that this star stands for.
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
    TakeCharacter(&text_behind_star);  // the star stands for one more
    pattern = *behind_star;
    text = text_behind_star;
  }
  return true;
}

}  // namespace tkv
