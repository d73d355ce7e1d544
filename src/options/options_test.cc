#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

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

TEST(Config, NamesTheVersionAndTheInstructionSet) {
  const std::string text = ConfigText();
  EXPECT_NE(text.find(std::string("version = ") + Version()), std::string::npos);
  EXPECT_NE(text.find("instruction_set = "), std::string::npos);
}

}  // namespace
}  // namespace tkv
