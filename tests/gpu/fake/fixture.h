// The fixture of tests on the fake driver.  The fixture resets the driver after each test and fails
// a test that misuses a device.

#pragma once

#include <gtest/gtest.h>

#include "base/format.h"
#include "tests/arrays.h"
#include "tests/gpu/fake/fake.h"
#include "tkv/error.h"
#include "tkv/gpu.h"
#include "tkv/storage.h"

namespace tkv::test {

// Driver results that tests inject.
inline constexpr int kOutOfMemory = 2;
inline constexpr int kOperatingSystem = 304;
inline constexpr int kIllegalAddress = 700;

// Returns a device that no test has used, because a failure may make a device unusable for later
// tests.
inline int32_t NextIndex() {
  static int32_t next = 1;
  return next++;
}

// Calls f(k) with the k-th driver call failing, for k = 1, 2, ... until f makes fewer calls.
// Returns the number of failing k.  If f continues after the failure, it ends the injection itself.
template <typename F>
int ForEachCall(int result, F f) {
  for (int k = 1;; ++k) {
    const int before = FAKE(fake_failures)();
    FAKE(fake_fail)(k, result);
    f(k);
    FAKE(fake_fail)(0, 0);
    if (FAKE(fake_failures)() == before) return k - 1;
  }
}

class OnFakeDriver : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_GT(GpuCount(), 0) << "LD_LIBRARY_PATH has to name the pretended driver";
    ASSERT_NE(FAKE(fake_calls), nullptr) << "this is another driver";
    violations_ = FAKE(fake_violations)();
  }
  void TearDown() override {
    FAKE(fake_fail)(0, 0);
    FAKE(fake_leave_out)(0);
    FAKE(fake_stop)(0);
    SetGpuInterrupt({});
    FailureOf([] { WaitAll(); });  // reports lost GPUs in this test, not in the next one
    if (!may_violate_) {
      EXPECT_EQ(FAKE(fake_violations)(), violations_);
    }
  }

  int violations_ = 0;
  bool may_violate_ = false;
};

}  // namespace tkv::test
