// Arrays on GPUs, on the fake driver.  In every order of the device's work they must have the
// values that the host has.  After a failure they must be unchanged.

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>

#include "kernels/kernels.h"
#include "tests/arrays.h"
#include "tests/gpu/fake/fixture.h"
#include "tests/gpu/same_values.h"
#include "tests/scarce_memory.h"
#include "tkv/dlpack.h"
#include "tkv/optimizer.h"
#include "tkv/tkv.h"

namespace tkv {
namespace {

using test::FailureOf;
using test::Floats;
using test::Full;
using test::NextIndex;
using test::OnHost;
using test::SameBytes;
using test::SameValues;
using test::ValuesOf;
using test::WithMemoryFor;

using Random = std::mt19937_64;
using GpuArrays = test::OnFakeDriver;

const Context kGpu = Context::Gpu(0);

constexpr int kDTypes = static_cast<int>(kLastDType) + 1;

// Returns elements with random bits.  Floats that are NaN become numbers, because GPUs do not keep
// a NaN's payload.
NDArray Arbitrary(const Shape& shape, DType dtype, Random* random) {
  const NDArray array = NDArray::Empty(shape, dtype);
  auto* const bytes = static_cast<unsigned char*>(array.HostData());
  for (size_t i = 0; i < array.bytes(); ++i) bytes[i] = static_cast<unsigned char>((*random)());
  if (dtype == DType::kBool) {
    for (size_t i = 0; i < array.bytes(); ++i) bytes[i] &= 1;
  }
  if (!IsFloat(dtype)) return array;
  const size_t item = ItemSize(dtype);
  for (size_t i = 0; i < array.bytes(); i += item) {
    double value = 0;
    kernels::Convert(dtype, bytes + i, DType::kF64, &value, 1);
    if (value != value) std::memset(bytes + i, 0, item);
  }
  return array;
}

// ----------------------------------------------------------------------------------------- making
TEST_F(GpuArrays, HoldWhatTheHostGives) {
  Random random(1);
  for (int i = 0; i < kDTypes; ++i) {
    for (const int64_t count : {0, 1, 5, 3000}) {
      const NDArray host = Arbitrary({count}, static_cast<DType>(i), &random);
      const NDArray there = host.WithContext(kGpu);
      EXPECT_EQ(there.context(), kGpu);
      EXPECT_TRUE(SameBytes(OnHost(there), host)) << Name(host.dtype());
      EXPECT_TRUE(SameBytes(OnHost(there.Copy()), host)) << Name(host.dtype());
    }
  }
}

TEST_F(GpuArrays, AreFilled) {
  for (int i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_TRUE(SameBytes(OnHost(NDArray::Zeros({7}, dtype, kGpu)), NDArray::Zeros({7}, dtype)));
    EXPECT_TRUE(SameBytes(OnHost(Full({3, 700}, 1, dtype, kGpu)), Full({3, 700}, 1, dtype)))
        << Name(dtype);
  }
  // Half way between two float16 values; converting by float32 would round it wrongly.
  const double half_way = 1 + 0x1p-11 + 0x1p-40;
  EXPECT_TRUE(
      SameBytes(OnHost(Full({5}, half_way, DType::kF16, kGpu)), Full({5}, half_way, DType::kF16)));
  const NDArray large = NDArray::Empty({3}, DType::kI64, kGpu);
  FillInteger(large, (int64_t{1} << 62) + 1);
  EXPECT_EQ(test::Values<int64_t>(OnHost(large))[2], (int64_t{1} << 62) + 1);
}

TEST_F(GpuArrays, HaveViewsThatShareTheirMemory) {
  const NDArray array = Full({4, 3}, 1, DType::kF32, kGpu);
  Fill(array.At(1), 2);
  Fill(array.Slice(2, 4).Reshape({6}).Slice(1, 3), 3);
  EXPECT_EQ(ValuesOf(array), (std::vector<float>{1, 1, 1, 2, 2, 2, 1, 3, 3, 1, 1, 1}));
}

TEST_F(GpuArrays, AreCopiedIntoEachOther) {
  const NDArray host = Floats({1, 2, 3, 4, 5, 6});
  const NDArray here = host.WithContext(kGpu);
  const NDArray there = NDArray::Zeros({6}, DType::kF32, Context::Gpu(NextIndex()));
  there.CopyFrom(here);
  EXPECT_TRUE(SameBytes(OnHost(there), host));
  there.Slice(2, 6).CopyFrom(there.Slice(0, 4));  // which overlap
  EXPECT_EQ(ValuesOf(there), (std::vector<float>{1, 2, 1, 2, 3, 4}));
  host.CopyFrom(there);
  EXPECT_EQ(test::Values(host), (std::vector<float>{1, 2, 1, 2, 3, 4}));
  EXPECT_FAILS(Code::kInvalidArgument, host.CopyFrom(there.Slice(0, 2)));
}

TEST_F(GpuArrays, AreCopiedFromAndToStridesOfTheHost) {
  std::vector<float> memory = {0, 1, 2, 3, 4, 5};
  const std::vector<int64_t> every_second = {2};
  const NDArray view =
      NDArray::Wrap(memory.data(), {3}, DType::kF32, {}, false, nullptr, every_second);
  const NDArray there = view.WithContext(kGpu);
  EXPECT_EQ(ValuesOf(there), (std::vector<float>{0, 2, 4}));
  view.CopyFrom(Binary(BinaryOp::kAdd, there, 10));
  EXPECT_EQ(memory, (std::vector<float>{10, 1, 12, 3, 14, 5}));
}

// ------------------------------------------------------------------------------------- arithmetic
TEST_F(GpuArrays, ComputeWhatTheHostComputes) {
  Random random(2);
  for (int i = 0; i < static_cast<int>(DType::kBool); ++i) {
    const auto dtype = static_cast<DType>(i);
    const Shape shape{1300};
    const NDArray a = Arbitrary(shape, dtype, &random), b = Arbitrary(shape, dtype, &random);
    const NDArray x = a.WithContext(kGpu), y = b.WithContext(kGpu);
    for (int op = 0; op < kBinaryOps; ++op) {
      const auto binary = static_cast<BinaryOp>(op);
      if (binary == BinaryOp::kDiv && !IsFloat(dtype)) {
        EXPECT_FAILS(Code::kInvalidArgument, Binary(binary, x, y));
        continue;
      }
      const auto what = [&] {
        return std::string(Name(binary)) + " of " + std::string(Name(dtype));
      };
      EXPECT_TRUE(SameValues(OnHost(Binary(binary, x, y)), Binary(binary, a, b))) << what();
      EXPECT_TRUE(SameValues(OnHost(Binary(binary, x, 3)), Binary(binary, a, 3))) << what();
      EXPECT_TRUE(SameValues(OnHost(Binary(binary, 3, x)), Binary(binary, 3, a))) << what();
      EXPECT_TRUE(SameValues(OnHost(Binary(binary, x, x)), Binary(binary, a, a))) << what();
    }
    for (int op = 0; op < kUnaryOps; ++op) {
      const auto unary = static_cast<UnaryOp>(op);
      if ((unary == UnaryOp::kSqrt || unary == UnaryOp::kSign) && !IsFloat(dtype)) continue;
      EXPECT_TRUE(SameValues(OnHost(Unary(unary, x)), Unary(unary, a)))
          << Name(unary) << " of " << Name(dtype);
    }
  }
}

TEST_F(GpuArrays, ComputeInPlaceAndBesideThemselves) {
  const NDArray array = Floats({1, 2, 3, 4, 5}).WithContext(kGpu);
  BinaryInto(BinaryOp::kMul, array, 3, array);
  BinaryInto(BinaryOp::kAdd, array, array, array);
  EXPECT_EQ(ValuesOf(array), (std::vector<float>{6, 12, 18, 24, 30}));
  BinaryInto(BinaryOp::kAdd, array.Slice(0, 4), array.Slice(1, 5), array.Slice(1, 5));
  EXPECT_EQ(ValuesOf(array), (std::vector<float>{6, 18, 30, 42, 54}));
  BinaryInto(BinaryOp::kAdd, array.Slice(0, 4), 1, array.Slice(1, 5));
  EXPECT_EQ(ValuesOf(array), (std::vector<float>{6, 7, 19, 31, 43}));
}

TEST_F(GpuArrays, ConvertAsTheHostConverts) {
  Random random(3);
  const DType floats[] = {DType::kF32,  DType::kF64,      DType::kF16,
                          DType::kBF16, DType::kF8E4M3FN, DType::kF8E5M2};
  for (const DType from : floats) {
    const NDArray host = Arbitrary({2000}, from, &random);
    for (const DType to : floats) {
      const NDArray there = ConvertFloat(host.WithContext(kGpu), to);
      EXPECT_EQ(there.context(), kGpu);
      EXPECT_TRUE(SameValues(OnHost(there), ConvertFloat(host, to))) << Name(from) << Name(to);
    }
  }
}

TEST_F(GpuArrays, AreThereForC) {
  const int64_t shape[] = {3};
  const float values[] = {1, 2, 3};
  float found[3] = {};
  tkv_array *array = nullptr, *copy = nullptr;
  tkv_context on_gpu{TKV_GPU, 0}, on_host{TKV_CPU, 0};
  ASSERT_EQ(tkv_array_full(shape, 1, TKV_F32, on_gpu, 7, &array, nullptr), TKV_OK);
  ASSERT_EQ(tkv_array_write(array, values, sizeof values, nullptr), TKV_OK);
  ASSERT_EQ(tkv_array_with_context(array, on_host, &copy, nullptr), TKV_OK);
  for (tkv_array* const each : {array, copy}) {
    ASSERT_EQ(tkv_array_read(each, found, sizeof found, nullptr), TKV_OK);
    EXPECT_EQ(std::memcmp(found, values, sizeof found), 0);
  }
  void* data = nullptr;
  EXPECT_EQ(tkv_array_data(array, 0, 1000, &data, nullptr), TKV_FAILED_PRECONDITION);
  tkv_array_release(array);
  tkv_array_release(copy);
}

// The arrays of an update on the host, and their copies on a device.
struct Updated {
  Updated(const Optimizer& optimizer, DType dtype, Random* random)
      : grad(Numbers(dtype, random)), value(Numbers(dtype, random)) {
    const DType compute = ComputeType(dtype);
    for (size_t i = 0; i < optimizer.program().states().size(); ++i) {
      states.push_back(NDArray::Zeros({1500}, compute));
    }
    for (size_t i = 0; i < optimizer.program().scalar_states().size(); ++i) {
      states.push_back(Full({1}, 1, DType::kF64));
    }
    if (compute != dtype) master = ConvertFloat(value, compute);
  }

  static NDArray Numbers(DType dtype, Random* random) {
    const NDArray wide = NDArray::Empty({1500}, DType::kF32);
    auto* const data = static_cast<float*>(wide.HostData());
    for (int i = 0; i < 1500; ++i) data[i] = static_cast<float>((*random)() % 2000) / 512 - 2;
    return ConvertFloat(wide, dtype);
  }

  Updated On(Context context) const {
    Updated there = *this;
    there.grad = grad.WithContext(context);
    there.value = value.WithContext(context);
    for (NDArray& state : there.states) state = state.WithContext(context);
    if (master) there.master = master.WithContext(context);
    return there;
  }

  void Apply(const Optimizer& optimizer, double round) const {
    ApplyUpdate(optimizer, "w", round, grad, value, states, master);
  }

  bool HasValuesOf(const Updated& host) const {
    bool same = SameValues(OnHost(value), host.value);
    for (size_t i = 0; i < states.size(); ++i) {
      same = same && SameValues(OnHost(states[i]), host.states[i]);
    }
    return same && (!master || SameValues(OnHost(master), host.master));
  }

  NDArray grad, value, master;
  std::vector<NDArray> states;
};

TEST_F(GpuArrays, AreUpdatedAsOnTheHost) {
  Random random(4);
  for (const std::string& name : BuiltinOptimizers()) {
    const auto optimizer = Optimizer::Create(name);
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
      const Updated host(*optimizer, dtype, &random);
      const Updated there = host.On(kGpu);
      for (int round = 1; round <= 3; ++round) {
        host.Apply(*optimizer, round);
        there.Apply(*optimizer, round);
      }
      EXPECT_TRUE(there.HasValuesOf(host)) << name << " of " << Name(dtype);
    }
  }
}

// ----------------------------------------------------------------------------------------- misuse
TEST_F(GpuArrays, DoNotMeetArraysOfOthersInArithmetic) {
  const NDArray host = Full({2}, 1), here = Full({2}, 1, DType::kF32, kGpu);
  const NDArray there = Full({2}, 1, DType::kF32, Context::Gpu(NextIndex()));
  EXPECT_EQ(FailureOf([&] { Binary(BinaryOp::kAdd, host, here); }).message,
            "arithmetic: an array on cpu(0) with one on gpu(0); copy one of them: as_in_context");
  EXPECT_FAILS(Code::kInvalidArgument, Binary(BinaryOp::kAdd, here, there));
  EXPECT_FAILS(Code::kInvalidArgument, BinaryInto(BinaryOp::kAdd, here, here, host));
}

TEST_F(GpuArrays, AreOutOfReachForCodeOfTheHost) {
  const NDArray array = Full({2}, 1, DType::kF32, kGpu);
  EXPECT_FAILS(Code::kFailedPrecondition, array.HostData());
  EXPECT_FAILS(Code::kFailedPrecondition, LendByDLPack(array, Access::kRead));
  const NDArray host = Full({2}, 1);
  EXPECT_FAILS(Code::kInvalidArgument,
               ApplyUpdate(*Optimizer::Create("sgd"), "w", 1, host, array, {}, {}));
  EXPECT_FAILS(Code::kInvalidArgument,
               ApplyUpdate(*Optimizer::Create("sgd"), "w", 1, array, host, {}, {}));
}

TEST_F(GpuArrays, NeedADeviceThatIsThere) {
  EXPECT_EQ(FailureOf([] { NDArray::Zeros({1}, DType::kF32, Context::Gpu(1000)); }).message,
            "context gpu(1000): this machine has 1000 GPUs, from gpu(0) on");
  EXPECT_FAILS(Code::kInvalidArgument, CheckUsable(Context::Gpu(-1)));
  EXPECT_FAILS(Code::kResourceExhausted, NDArray::Empty({1 << 26}, DType::kF32, kGpu));
}

// ---------------------------------------------------------------------------------------- hazards
// Random steps that mix host and devices, on the library's arrays and on a plain model of them.
class Steps {
 public:
  explicit Steps(uint64_t seed) : random_(seed) {
    for (size_t i = 0; i < kArrays; ++i) {
      const std::vector<float> values(kCount, static_cast<float>(i));
      model_.push_back(values);
      arrays_.push_back(Floats(values).WithContext(ContextOf(i)));
    }
  }

  void Do() {
    const size_t a = Any(), b = Any(), c = Any() / 3 * 3 + a % 3;  // c is on the device of a
    const auto value = static_cast<float>(random_() % 100);
    switch (random_() % 6) {
      case 0:
        arrays_[a].CopyFrom(arrays_[b]);
        model_[a] = model_[b];
        break;
      case 1:
        BinaryInto(BinaryOp::kAdd, arrays_[a], arrays_[c], arrays_[c]);
        for (size_t i = 0; i < kCount; ++i) model_[c][i] += model_[a][i];
        break;
      case 2:
        Fill(arrays_[a], value);
        model_[a].assign(kCount, value);
        break;
      case 3:  // new memory for the array
        arrays_[a] = Binary(BinaryOp::kMin, arrays_[a], value);
        for (float& x : model_[a]) x = std::min(x, value);
        break;
      case 4:
        arrays_[a].Slice(1, kCount).CopyFrom(arrays_[a].Slice(0, kCount - 1));
        std::copy_backward(model_[a].begin(), model_[a].end() - 1, model_[a].end());
        break;
      default:
        EXPECT_EQ(ValuesOf(arrays_[a]), model_[a]);
    }
  }

  void Check() const {
    for (size_t i = 0; i < kArrays; ++i) EXPECT_EQ(ValuesOf(arrays_[i]), model_[i]);
  }

 private:
  static constexpr size_t kArrays = 9;
  static constexpr int64_t kCount = 70;

  static Context ContextOf(size_t array) {
    return array % 3 == 0 ? Context::Cpu() : Context::Gpu(static_cast<int32_t>(array % 3 - 1));
  }
  size_t Any() { return random_() % kArrays; }

  Random random_;
  std::vector<std::vector<float>> model_;
  std::vector<NDArray> arrays_;
};

TEST_F(GpuArrays, HaveTheirValuesInEveryOrderOfStreams) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    FAKE(fake_seed)(seed);
    Steps steps(seed);
    for (int i = 0; i < 40; ++i) steps.Do();
    steps.Check();
    ASSERT_EQ(FAKE(fake_violations)(), violations_) << "seed " << seed;
  }
}

// An operation that a stream waits for.  Ordering takes until another thread orders the same
// operation, or a long time.
class Meeting final : public Pending {
 public:
  bool done() const noexcept override { return is_over; }
  void Wait(std::chrono::nanoseconds) override {}
  bool Order(Stream*) override {
    std::unique_lock lock(mutex_);
    most_ = std::max(most_, ++inside_);
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::milliseconds(200), [&] { return most_ > 1; });
    --inside_;
    return true;
  }
  int most() const { return most_; }
  std::atomic<bool> is_over = false;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;
  int most_ = 0;
};

TEST_F(GpuArrays, AreTakenByOneThreadAtATime) {
  const NDArray a = Full({4}, 0, DType::kF32, kGpu), b = Full({4}, 0, DType::kF32, kGpu);
  const auto meeting = std::make_shared<Meeting>();
  a.storage()->AddWriter(meeting);
  std::thread other([&] { a.CopyFrom(b); });
  b.CopyFrom(a);
  other.join();
  EXPECT_EQ(meeting->most(), 1);
  meeting->is_over = true;
}

TEST_F(GpuArrays, OfSeveralThreadsKeepTheirOrder) {
  const NDArray a = Full({4}, 0, DType::kF32, kGpu);
  const NDArray b = Full({4}, 0, DType::kF32, Context::Gpu(NextIndex()));
  const auto exchange = [](const NDArray& from, const NDArray& to) {
    const auto failure = FailureOf([&] {
      for (int i = 0; i < 2000; ++i) to.CopyFrom(from);
    });
    EXPECT_FALSE(failure.code) << failure.message;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] { exchange(a, b); });
    threads.emplace_back([&] { exchange(b, a); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ValuesOf(a), std::vector<float>(4, 0));
}

// Memory that a lost GPU has read before does not depend on that GPU any more.
TEST_F(GpuArrays, HaveMemoryThatALostGpuHasUsed) {
  const Context context = Context::Gpu(NextIndex());
  const Context lost = Context::Gpu(NextIndex());
  {
    const NDArray source = Full({1 << 20}, 1, DType::kF32, context);
    const NDArray target = NDArray::Zeros({1 << 20}, DType::kF32, lost);
    WaitAll();
    FAKE(fake_stop)(1);
    target.CopyFrom(source);
  }
  FAKE(fake_lose)(lost.index, test::kIllegalAddress);
  FAKE(fake_stop)(0);
  EXPECT_EQ(NDArray::Empty({62 << 18}, DType::kF32, context).size(),
            62 << 18);  // all that there is
}

// An operation of the host, which ends when a test ends it.
class HostOperation final : public Pending {
 public:
  bool done() const noexcept override { return done_; }
  void Wait(std::chrono::nanoseconds patience) override {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!done_ && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    if (!done_) throw Fail(Code::kDeadlineExceeded, "it waits");
  }
  void End() { done_ = true; }

 private:
  std::atomic<bool> done_ = false;
};

TEST_F(GpuArrays, ThatWaitForTheHostKeepNobodyElseWaiting) {
  const NDArray waits = Full({10}, 1, DType::kF32, kGpu);
  const NDArray other = Full({10}, 1, DType::kF32, kGpu);
  const auto operation = std::make_shared<HostOperation>();
  waits.storage()->AddWriter(operation);
  std::thread waiting([&] { Fill(waits, 2); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::thread ending([&] {  // like the end of a pull into an array, which copies to a device
    Fill(other, 3);
    operation->End();
  });
  ending.join();
  waiting.join();
  EXPECT_EQ(ValuesOf(waits), std::vector<float>(10, 2));
  EXPECT_EQ(ValuesOf(other), std::vector<float>(10, 3));
}

TEST_F(GpuArrays, AreReadToTheEndBeforeTheyAreWrittenAfterAnInterrupt) {
  const Context context = Context::Gpu(NextIndex());
  const NDArray array = Full({1000}, 1, DType::kF32, context);
  array.storage()->WaitWritable();
  FAKE(fake_stop)(1);
  SetGpuInterrupt([] { throw Error(Code::kCancelled, "the user"); });
  EXPECT_FAILS(Code::kCancelled, OnHost(array));
  SetGpuInterrupt({});
  EXPECT_TRUE(array.storage()->IsInUse(Access::kWrite)) << "the copy to the host is under way";
  Fill(array, 2);
  FAKE(fake_stop)(0);
  EXPECT_EQ(ValuesOf(array), std::vector<float>(1000, 2));
}

TEST_F(GpuArrays, GoWithWorkUnderWayAndTheirMemoryIsUsedAgain) {
  FAKE(fake_stop)(1);
  const void* first = nullptr;
  {
    const NDArray array = Full({1000}, 1, DType::kF32, kGpu);
    first = array.data();
  }
  const NDArray again = Full({1000}, 2, DType::kF32, kGpu);
  EXPECT_EQ(again.data(), first);
  EXPECT_TRUE(again.storage()->IsInUse(Access::kRead));
  FAKE(fake_stop)(0);
  EXPECT_EQ(ValuesOf(again), std::vector<float>(1000, 2));
}

TEST_F(GpuArrays, AreWaitedForAll) {
  FAKE(fake_stop)(1);
  const NDArray array = Full({10}, 1, DType::kF32, kGpu);
  EXPECT_FAILS(Code::kDeadlineExceeded, WaitAll(std::chrono::milliseconds(1)));
  FAKE(fake_stop)(0);
  WaitAll();
  EXPECT_FALSE(array.storage()->IsInUse(Access::kWrite));
}

// --------------------------------------------------------------------------------------- failures
// One operation of each kind for an array that holds 1, 2, ...; the array afterwards is `after`, or
// unchanged after a failure.
struct Operation {
  const char* name;
  std::function<void(const NDArray&)> run;
  std::vector<float> after;
};

const std::vector<Operation>& Operations() {
  static const std::vector<Operation> operations = {
      {"fill", [](const NDArray& a) { Fill(a, 7); }, {7, 7, 7}},
      {"add", [](const NDArray& a) { BinaryInto(BinaryOp::kAdd, a, a, a); }, {2, 4, 6}},
      {"copy from the host", [](const NDArray& a) { a.CopyFrom(Floats({4, 5, 6})); }, {4, 5, 6}},
      {"copy to the host", [](const NDArray& a) { ValuesOf(a); }, {1, 2, 3}},
      {"copy within",
       [](const NDArray& a) { a.CopyFrom(Binary(BinaryOp::kAdd, a, 1)); },
       {2, 3, 4}},
      {"convert",
       [](const NDArray& a) {
         a.CopyFrom(ConvertFloat(ConvertFloat(a, DType::kF16), DType::kF32));
       },
       {1, 2, 3}},
      {"slices", [](const NDArray& a) { a.Slice(1, 3).CopyFrom(a.Slice(0, 2)); }, {1, 1, 2}},
      {"from another",
       [](const NDArray& a) { a.CopyFrom(Full({3}, 9, DType::kF32, Context::Gpu(NextIndex()))); },
       {9, 9, 9}}};
  return operations;
}

TEST_F(GpuArrays, AreAsTheyWereAfterACallThatFails) {
  const std::vector<float> before = {1, 2, 3};
  for (const Operation& operation : Operations()) {
    Context context = Context::Gpu(NextIndex());
    const int calls = test::ForEachCall(test::kOperatingSystem, [&](int k) {
      FAKE(fake_fail)(0, 0);
      const NDArray array = Floats(before).WithContext(context);
      array.storage()->WaitWritable();
      FAKE(fake_fail)(k, test::kOperatingSystem);
      const auto failure = FailureOf([&] { operation.run(array); });
      FAKE(fake_fail)(0, 0);
      if (FailureOf([&] { CheckUsable(context); }).code == Code::kUnavailable) {
        context = Context::Gpu(NextIndex());
        return;
      }
      EXPECT_EQ(ValuesOf(array), failure.code ? before : operation.after)
          << operation.name << ", call " << k << ": " << failure.message;
    });
    EXPECT_GT(calls, 5) << operation.name;
  }
}

TEST_F(GpuArrays, AreAsTheyWereAfterAnAllocationThatFails) {
  const std::vector<float> before = {1, 2, 3};
  for (const Operation& operation : Operations()) {
    operation.run(Floats(before).WithContext(kGpu));  // compiles the kernel
    bool has_enough = false;
    for (int allocations = 0; !has_enough; ++allocations) {
      const NDArray array = Floats(before).WithContext(kGpu);
      const auto attempt = WithMemoryFor(allocations, [&] { operation.run(array); });
      has_enough = !attempt.ran_out;
      EXPECT_EQ(ValuesOf(array), attempt.succeeded ? operation.after : before)
          << operation.name << ", allocation " << allocations;
    }
  }
}

TEST_F(GpuArrays, OfALostDeviceSayWhyAndTheOthersGoOn) {
  const Context context = Context::Gpu(NextIndex());
  const NDArray lost = Full({10}, 1, DType::kF32, context);
  const NDArray other = Full({10}, 1, DType::kF32, kGpu);
  const NDArray host = Full({10}, 1);
  FAKE(fake_lose)(context.index, test::kIllegalAddress);
  for (const auto& use : std::vector<std::function<void()>>{
           [&] { OnHost(lost); }, [&] { Fill(lost, 2); }, [&] { lost.CopyFrom(host); },
           [&] { other.CopyFrom(lost); }, [&] { host.CopyFrom(lost); },
           [&] { Binary(BinaryOp::kAdd, lost, lost); }, [&] { CheckUsable(context); },
           [&] { NDArray::Zeros({1}, DType::kF32, context); }}) {
    const auto failure = FailureOf(use);
    EXPECT_EQ(failure.code, Code::kUnavailable) << failure.message;
    EXPECT_NE(failure.message.find("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), std::string::npos);
  }
  EXPECT_EQ(ValuesOf(Binary(BinaryOp::kAdd, other, host.WithContext(kGpu))),
            std::vector<float>(10, 2));
  EXPECT_EQ(test::Values(Binary(BinaryOp::kAdd, host, 1)), std::vector<float>(10, 2));
}

}  // namespace
}  // namespace tkv
