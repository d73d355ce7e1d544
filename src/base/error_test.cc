#include "tkv/error.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace tkv {
namespace {

TEST(Error, CodesCarryTheNumbersOfGrpc) {
  EXPECT_EQ(static_cast<int>(Code::kInvalidArgument), 3);
  EXPECT_EQ(static_cast<int>(Code::kUnauthenticated), 16);
  EXPECT_STREQ(Name(Code::kDataLoss), "DataLoss");
  EXPECT_STREQ(Name(static_cast<Code>(99)), "Unknown");
}

TEST(Error, FailFormatsTheMessage) {
  const Error error = Fail(Code::kNotFound, "pull '{}': no such key", "w");
  EXPECT_EQ(error.code(), Code::kNotFound);
  EXPECT_STREQ(error.what(), "pull 'w': no such key");
}

TEST(Error, TheMessageIsWholeAndCanBePrinted) {
  using std::string_view_literals::operator""sv;
  const Error error = Fail(Code::kNotFound, "pull '{}': \tnone\n", "a\0b\xff\x1b[2J\xc3\xa9"sv);
  EXPECT_STREQ(error.what(), "pull 'a\\x00b\\xff\\x1b[2J\xc3\xa9': \tnone\n");
}

TEST(Error, AFailedCheckIsAnInternalErrorThatNamesItsPlace) {
  try {
    TKV_CHECK(1 + 1 == 3);
    FAIL() << "did not throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInternal);
    EXPECT_NE(std::string(error.what()).find("1 + 1 == 3"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find(" at src/base/error_test.cc:"), std::string::npos)
        << "a path of the machine that compiled: " << error.what();
  }
}

TEST(Drop, ACounterFallsToZeroAndNoFurther) {
  uint32_t counter = 3;
  Drop(&counter, 2);
  Drop(&counter);
  EXPECT_EQ(counter, 0U);
  try {
    Drop(&counter);
    FAIL() << "did not throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInternal);
    EXPECT_NE(std::string(error.what()).find(" at src/base/error_test.cc:"), std::string::npos)
        << "a path of the machine that compiled: " << error.what();
  }
  EXPECT_EQ(counter, 0U);
}

}  // namespace
}  // namespace tkv
