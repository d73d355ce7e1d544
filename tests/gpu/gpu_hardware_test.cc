// Checks of results on any driver, fake or NVIDIA's: a GPU computes the same bits as the host.
// `./dev gpu check` runs them on hardware with more repetitions (TKV_TEST_GPU_PROGRAMS).

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tests/gpu/named_kernels.h"
#include "tests/gpu/random_program.h"
#include "tests/gpu/store_program.h"
#include "tkv/optimizer.h"
#include "tkv/testing.h"
#include "update/program_body.h"

namespace tkv {
namespace {

using test::FromEnvironment;
using test::Gpu;
using test::OnHost;
using test::Random;
using test::SameValues;

class Hardware : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_GT(GpuCount(), 0) << "no driver that can be used"; }
};

NDArray Values(int64_t count, DType dtype, Random* random) {
  test::Bytes bytes;
  for (int64_t i = 0; i < count; ++i) test::AppendRandom(dtype, random, &bytes);
  return NDArray::FromBytes(bytes.data(), {count}, dtype);
}

// Runs rounds of a program on a GPU and on the host and compares the results.
void CheckUpdates(const Optimizer& optimizer, DType dtype, bool has_master, Random* random) {
  const int64_t count = static_cast<int64_t>((*random)() % 3000);
  const DType compute = ComputeType(dtype);
  std::vector<NDArray> host = {Values(count, dtype, random)};
  const ProgramBody& body = optimizer.program().body();
  for (size_t i = 0; i < body.states.size(); ++i) host.push_back(Values(count, compute, random));
  if (has_master) host.push_back(Values(count, DType::kF32, random));
  std::vector<NDArray> there;
  there.reserve(host.size());
  for (const NDArray& array : host) there.push_back(array.WithContext(Gpu(0)));
  std::vector<NDArray> scalars_here, scalars_there;  // on the host in both
  for (const Program::ScalarState& scalar : body.scalar_states) {
    for (auto* const scalars : {&scalars_here, &scalars_there}) {
      scalars->push_back(test::Full({1}, scalar.initial, DType::kF64));
    }
  }
  const auto update = [&](const std::vector<NDArray>& all, const std::vector<NDArray>& scalars,
                          const NDArray& grad, double round) {
    std::vector<NDArray> states(all.begin() + 1,
                                all.begin() + 1 + static_cast<ptrdiff_t>(body.states.size()));
    states.insert(states.end(), scalars.begin(), scalars.end());
    ApplyUpdate(optimizer, "w", round, grad, all[0], states, has_master ? all.back() : NDArray());
  };
  for (int round = 1; round <= 3; ++round) {
    const NDArray grad = Values(count, dtype, random);
    update(host, scalars_here, grad, round);
    update(there, scalars_there, grad.WithContext(Gpu(0)), round);
  }
  for (size_t i = 0; i < host.size(); ++i) {
    ASSERT_TRUE(SameValues(OnHost(there[i]), host[i]))
        << "array " << i << " of " << Name(dtype) << ", " << count << " elements\n"
        << optimizer.program().ToText();
  }
}

TEST_F(Hardware, RandomProgramsHaveTheBitsOfTheHost) {
  const uint64_t first = FromEnvironment("TKV_TEST_GPU_SEED", 1);
  const uint64_t count = FromEnvironment("TKV_TEST_GPU_PROGRAMS", 60);
  for (uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    SCOPED_TRACE(Format("seed {}", seed));
    Random random(seed);
    const DType dtype = test::kArithmeticTypes[random() % std::size(test::kArithmeticTypes)];
    const Optimizer optimizer(Program::Parse(test::RandomProgram(dtype, &random).text()));
    const bool may_have_master = dtype == DType::kF16 || dtype == DType::kBF16;
    CheckUpdates(optimizer, dtype, may_have_master && random() % 2 == 0, &random);
  }
}

TEST_F(Hardware, EveryBuiltinHasTheBitsOfTheHost) {
  Random random(1);
  for (const std::string& name : BuiltinOptimizers()) {
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(name);
      const auto optimizer = Optimizer::Create(name);
      CheckUpdates(*optimizer, dtype, ComputeType(dtype) != dtype, &random);
    }
  }
}

TEST_F(Hardware, CopiesOfEverySizeComeBack) {
  Random random(2);
  for (const int64_t count : {0, 1, 3, 255, 4097, 524288, 524289, 2097152 + 5}) {
    const NDArray host = Values(count, DType::kU8, &random);
    const NDArray there = host.WithContext(Gpu(0));
    const NDArray other = there.WithContext(Gpu(1));
    EXPECT_TRUE(SameValues(OnHost(other.Copy()), host)) << count;
    if (count > 10) {
      EXPECT_TRUE(SameValues(OnHost(other.Slice(3, count - 4)), host.Slice(3, count - 4))) << count;
    }
  }
}

TEST_F(Hardware, StoresDoWhatThoseOfTheHostDo) {
  test::ForSeeds(
      "tkv-hardware",
      [](uint64_t seed, const std::filesystem::path& folder) {
        const auto gpu = KVStore::Create("device");
        const auto host = KVStore::Create("device");
        test::StoreProgram(seed, folder, gpu.get(), host.get()).Run(30);
      },
      10);
}

TEST_F(Hardware, JobsDoWhatThoseOfTheHostDo) {
  test::ForSeeds(
      "tkv-hardware",
      [](uint64_t seed, const std::filesystem::path& folder) {
        testing::ClusterOptions options;
        options.workers = 1;
        options.servers = 2;
        options.type = "dist_sync_device";
        testing::Cluster gpus(options), hosts(options);
        const auto gpu = gpus.Join(0);
        const auto host = hosts.Join(0);
        test::StoreProgram(seed, folder, gpu.get(), host.get()).Run(30);
        gpu->Close();
        host->Close();
      },
      10);
}

// Values that need all tiles of a launch, and all blocks that a GPU runs at a time.
TEST_F(Hardware, LargeValuesAreSummedToTheLastElement) {
  const auto size = static_cast<int64_t>(FromEnvironment("TKV_TEST_GPU_ELEMENTS", 300001));
  const auto gpu = KVStore::Create("device");
  const auto host = KVStore::Create("device");
  Random random(3);
  const NDArray a = Values(size, DType::kF32, &random);
  const NDArray b = Values(size, DType::kF32, &random);
  const std::vector<NDArray> here = {a, b, a};
  const std::vector<NDArray> there = {a.WithContext(Gpu(0)), b.WithContext(Gpu(1)),
                                      a.WithContext(Gpu(0))};
  for (KVStore* const store : {gpu.get(), host.get()}) {
    store->Init(1, a);
    store->SetOptimizer(Optimizer::Create("adam"));
    store->Push(1, store == gpu.get() ? there : here);
  }
  EXPECT_TRUE(SameValues(test::Pulled(*gpu, 1), test::Pulled(*host, 1)));
}

}  // namespace
}  // namespace tkv
