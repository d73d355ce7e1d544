#include <gtest/gtest.h>

#include <algorithm>

#include "tests/arrays.h"
#include "tkv/simulation.h"

namespace tkv::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 200;  // all seeds run without a sanitizer
#else
constexpr uint64_t kSeeds = 2000;
#endif

SimulationReport RunSeed(uint64_t seed, const std::string& faults = "all") {
  SimulationOptions options;
  options.seed = seed;
  options.faults = faults;
  return Simulate(options);
}

TEST(Simulation, EveryGuaranteeHoldsInEverySeed) {
  uint64_t operations = 0;
  uint64_t faults = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const SimulationReport report = RunSeed(seed);
    ASSERT_TRUE(report.passed) << "seed " << seed << ": " << report.violation
                               << "; again: tkv sim --seed " << seed;
    operations += report.operations;
    faults += report.faults;
  }
  EXPECT_GE(operations, kSeeds * 200);
  EXPECT_GE(faults, kSeeds * 5);
}

TEST(Simulation, WithoutFaultsNothingFails) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const SimulationReport report = RunSeed(seed, "");
    ASSERT_TRUE(report.passed) << "seed " << seed << ": " << report.violation;
  }
}

// The hashes are equal in Debug and Release, on every machine.  A change of these numbers means
// that the protocol or the simulation changed, and has to be intended.
TEST(Simulation, TheSameSeedIsTheSameRunEverywhere) {
  const uint64_t hashes[] = {
#include "simulation/hashes.inc"
  };
  static_assert(std::size(hashes) == 20);
  for (uint64_t seed = 1; seed <= std::size(hashes); ++seed) {
    const SimulationReport first = RunSeed(seed);
    EXPECT_EQ(first.hash, hashes[seed - 1]) << "seed " << seed;
    EXPECT_EQ(first.hash, RunSeed(seed).hash);
  }
}

TEST(Simulation, ATraceTellsTheSameRun) {
  SimulationOptions options;
  options.seed = 3;
  options.trace = true;
  const SimulationReport traced = Simulate(options);
  EXPECT_FALSE(traced.trace.empty());
  EXPECT_EQ(traced.hash, RunSeed(3).hash);
}

TEST(Simulation, BadOptionsAreErrors) {
  EXPECT_FAILS(Code::kInvalidArgument, RunSeed(1, "rain"));
  SimulationOptions options;
  options.workers = -1;
  EXPECT_FAILS(Code::kInvalidArgument, Simulate(options));
  options.workers = 0;
  options.servers = 1'000'000'000;
  EXPECT_FAILS(Code::kInvalidArgument, Simulate(options));
}

}  // namespace
}  // namespace tkv::testing
