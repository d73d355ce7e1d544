#include "base/logfmt.h"

#include <gtest/gtest.h>

namespace tkv {
namespace {

TEST(Logfmt, FieldsStandInTheirOrder) {
  EXPECT_EQ(EventFields("joined").Add("server", 1).Add("of", 4).Add("standing", "5.0s").text(),
            "event=joined server=1 of=4 standing=5.0s");
}

TEST(Logfmt, ValuesThatWouldNotBeOneWordAreQuoted) {
  EXPECT_EQ(Fields().Add("key", "a b").text(), "key=\"a b\"");
  EXPECT_EQ(Fields().Add("key", "").text(), "key=\"\"");
  EXPECT_EQ(Fields().Add("key", "a=b").text(), "key=\"a=b\"");
  EXPECT_EQ(Fields().Add("key", "say \"x\"").text(), "key=\"say \\\"x\\\"\"");
}

TEST(Logfmt, HostileNamesStayInTheirLine) {
  EXPECT_EQ(Escaped("w\nevent=ended"), "w\\nevent=ended");
  EXPECT_EQ(Escaped("\x1b[2J"), "\\x1b[2J");
  EXPECT_EQ(Escaped(std::string("a\0b\x7f", 4)), "a\\x00b\\x7f");
  EXPECT_EQ(Escaped("\xC2\x9B"
                    "31m"),
            "\\xc2\\x9b31m");  // a control above ASCII
}

TEST(Logfmt, TextOfAllLanguagesStaysAndWhatIsNoUtf8IsShownAsBytes) {
  EXPECT_EQ(Escaped("ключ 重み 🦊"), "ключ 重み 🦊");
  EXPECT_EQ(Escaped("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(Escaped("\xC0\xAF"), "\\xc0\\xaf");           // too long a form
  EXPECT_EQ(Escaped("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(Escaped("\xE9\x87"), "\\xe9\\x87");           // cut
}

}  // namespace
}  // namespace tkv
