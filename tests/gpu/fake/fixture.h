// A test on the pretended driver: whatever it tells the driver ends with it, and it may not misuse devices.

#pragma once

#include <gtest/gtest.h>

#include "base/format.h"
#include "tests/arrays.h"
#include "tests/gpu/fake/fake.h"
#include "tkv/error.h"
#include "tkv/gpu.h"
#include "tkv/storage.h"

namespace tkv::test {

// Results of the driver that tests let calls have.
inline constexpr int kOutOfMemory = 2;
inline constexpr int kOperatingSystem = 304;
inline constexpr int kIllegalAddress = 700;

// Devices that no test has used: what a failure may lose stays behind.
inline int32_t NextIndex() {
  static int32_t next = 1;
  return next++;
}

// Calls f(k), which ends the failures itself where it goes on, with the k-th call of the driver failing; for
// each k until f needs fewer.  Returns how many it needs.
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
    FailureOf([] { WaitAll(); });  // tells of GPUs that the test has lost, and not the next one
    if (!may_violate_) {
      EXPECT_EQ(FAKE(fake_violations)(), violations_);
    }
  }

  int violations_ = 0;
  bool may_violate_ = false;
};

}  // namespace tkv::test
