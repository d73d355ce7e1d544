#include "base/wildcard.h"

#include <gtest/gtest.h>

#include <string>

namespace tkv {
namespace {

using namespace std::string_view_literals;

struct WildcardCase {
  std::string_view pattern, text;
  bool matches;
};

TEST(MatchesWildcard, DoesWhatItsCommentSays) {
  const WildcardCase cases[] = {
      {"", "", true},
      {"", "a", false},
      {"a", "", false},
      {"*", "", true},
      {"*", "a/b.c", true},
      {"*.weight", "conv1.weight", true},
      {"*.weight", "conv1.weight2", false},
      {"a*b*c", "aXbYbZc", true},
      {"a*b*c", "aXbYbZ", false},
      {"**a", "bca", true},
      {"conv?", "conv1", true},
      {"conv?", "conv", false},
      {"?", "\xc3\xa4", true},  // one character of two bytes
      {"??", "\xc3\xa4", false},
      {"???", "\xe2\x82\xac\xf0\x9f\x98\x80x", true},
      {"?", "\xff", true},
      {"\xff", "\xff", true},
      {"??", "\xc3z", true},  // bytes that are not UTF-8
      {"?", ".hidden", false},
      {"*", ".hidden", true},
      {"layer[0-3]", "layer2", true},
      {"layer[0-3]", "layer4", false},
      {"[a-cx]", "b", true},
      {"[a-cx]", "x", true},
      {"[a-cx]", "d", false},
      {"[!a-cx]", "d", true},
      {"[!a-cx]", "b", false},
      {"[!a]", "", false},
      {"[]]", "]", true},
      {"[]a]", "a", true},
      {"[!]]", "]", false},
      {"[!]]", "a", true},
      {"[-a]", "-", true},
      {"[a-]", "-", true},
      {"[a-c-e]", "-", true},
      {"[a-c-e]", "d", false},
      {"[z-a]", "m", false},
      {"[!z-a]", "m", true},
      {"[\xc3\xa4-\xc3\xbc]", "\xc3\xb6", true},
      {"[", "[", true},
      {"[a", "[a", true},
      {"[]", "[]", true},
      {"[!]", "[!]", true},
      {"a[b", "ab", false},
      {"[^a]", "^", true},  // no negation
      {"[^a]", "a", true},
      {"[^a]", "b", false},
      {"[[:alpha:]]", "x", false},  // no class: one of "[:alph", and a bracket
      {"[[:alpha:]]", "a]", true},
      {"a\\b", "a\\b", true},
      {"\\*", "*", false},
      {"\\*", "\\x", true},
      {"[\\]", "\\", true},
      {"[*?]", "*", true},
      {"[*?]", "x", false},
      {"[[]", "[", true},
      {"a\0*"sv, "a\0b"sv, true},
      {"a", "a\0b"sv, false},
      {"a?b", "a\nb", true},
  };
  for (const WildcardCase& one : cases) {
    EXPECT_EQ(MatchesWildcard(one.pattern, one.text), one.matches)
        << one.pattern << " and " << one.text;
  }
}

TEST(MatchesWildcard, ManyStarsTakeNoTimeWithoutBound) {
  std::string pattern;
  for (int i = 0; i < 300; ++i) pattern += "*a";
  EXPECT_FALSE(MatchesWildcard(pattern + "b", std::string(1000, 'a')));
  EXPECT_TRUE(MatchesWildcard(pattern, std::string(1000, 'a')));
}

}  // namespace
}  // namespace tkv
