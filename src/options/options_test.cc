#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "options/save_interval.h"
#include "tkv/config.h"
#include "tkv/error.h"

namespace tkv {
namespace {

TEST(Options, TheEnvironmentIsReadAndChecked) {
  setenv("TKV_THREADS", "3", 1);
  EXPECT_EQ(OptionsFromEnvironment().threads, 3);
  for (const char* wrong : {"-1", "two", "1x"}) {
    setenv("TKV_THREADS", wrong, 1);
    EXPECT_THROW(OptionsFromEnvironment(), Error) << wrong;
  }
  unsetenv("TKV_THREADS");
  EXPECT_EQ(OptionsFromEnvironment().threads, 0);
}

TEST(SaveInterval, IsANumberOfRoundsOrOfSeconds) {
  EXPECT_EQ(SaveIntervalOf("100")->rounds, 100U);
  EXPECT_EQ(SaveIntervalOf("100")->seconds, 0U);
  EXPECT_EQ(SaveIntervalOf("30s")->seconds, 30U);
  EXPECT_EQ(SaveIntervalOf("30s")->rounds, 0U);
  for (const char* wrong :
       {"", "s", "0", "0s", "-1", "+1", " 1", "1 ", "1m", "1ss", "1000000001"}) {
    EXPECT_FALSE(SaveIntervalOf(wrong)) << wrong;
  }
}

TEST(Config, NamesTheVersionAndTheInstructionSet) {
  const std::string text = ConfigText();
  EXPECT_NE(text.find(std::string("version = ") + Version()), std::string::npos);
  EXPECT_NE(text.find("instruction_set = "), std::string::npos);
}

}  // namespace
}  // namespace tkv
