// The device layer on the fake driver: failures of the driver, the memory and the device.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "base/format.h"
#include "device/device.h"
#include "tests/arrays.h"
#include "tests/gpu/fake/fixture.h"
#include "tests/scarce_memory.h"
#include "tkv/gpu.h"
#include "update/gpu_launch.h"

namespace tkv {
namespace {

using kernels::Elementwise;
using test::FailureOf;
using test::ForEachCall;
using test::kIllegalAddress;
using test::NextIndex;
using test::WithMemoryFor;
using Values = std::vector<float>;

Values Counting(size_t count) {
  Values values(count);
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

// A buffer in a device's memory, with its pending uses.
struct Buffer {
  Buffer(Device* d, size_t count)
      : device(d), bytes(count * sizeof(float)), block(d->blocks().Take(bytes)) {}
  ~Buffer() {
    if (!uses.empty()) block.mapped().pending.assign(uses.begin(), uses.end());
    device->blocks().Give(std::move(block));
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  cuda::Address address() const { return block.mapped().address; }
  // Makes later work on the stream wait for all uses of the buffer.
  void Order(Stream* stream) {
    for (const auto* const all : {&block.mapped().pending, &uses}) {
      for (const PendingUse& use : *all) {
        if (!use.operation->Order(stream)) use.operation->Wait(kHazardPatience);
      }
    }
  }

  Device* device;
  size_t bytes;
  KeptBlock block;
  std::vector<PendingUse> uses;
};

std::shared_ptr<Event> Upload(Buffer* target, const Values& values) {
  Device& device = *target->device;
  const auto done = std::make_shared<Event>(&device);
  const AbandonUnlessRecorded abandon(done.get());
  target->uses.reserve(target->uses.size() + 1);
  target->Order(&device.to_device());
  device.staging_to_device().CopyToDevice(values.data(), target->address(), target->bytes,
                                          &device.to_device(), done.get());
  target->uses.push_back({done, true});
  return done;
}

void Download(Buffer* source, Values* values) {
  Device& device = *source->device;
  const auto done = std::make_shared<Event>(&device);
  const AbandonUnlessRecorded abandon(done.get());
  source->uses.reserve(source->uses.size() + 1);
  source->Order(&device.to_host());
  source->uses.push_back({done, false});  // a copy may fail after it has begun
  device.staging_to_host().CopyToHost(source->address(), values->data(), source->bytes,
                                      &device.to_host(), done.get());
}

Values Download(Buffer* source) {
  Values values(source->bytes / sizeof(float));
  Download(source, &values);
  return values;
}

// target = target + target
void Double(Buffer* target) {
  Device& device = *target->device;
  Elementwise code;
  code.pointer_count = 1;
  code.loads = {{DType::kF32, 0}};
  code.instructions = {{kernels::Op::kAdd, {{false, 1}, {false, 1}}}};
  code.stores = {{2, DType::kF32, DType::kF32, 0}};
  const kernels::cuda::Entry entry{target->bytes / sizeof(float), {target->address()}, {}, {}};
  kernels::cuda::LaunchTable table(code);
  table.Add(entry);
  GpuLaunch launch(&device, code, table);
  const auto done = std::make_shared<Event>(&device);
  const AbandonUnlessRecorded abandon(done.get());
  target->uses.reserve(target->uses.size() + 1);
  target->Order(&device.compute());
  launch.Run();
  done->Record(&device.compute());
  target->uses.push_back({done, true});
}

// Exercises the whole layer on one device.  Returns the values doubled.
Values ThereAndBack(int32_t index, const Values& values) {
  Device& device = Device::Get(index);
  Buffer buffer(&device, values.size());
  Upload(&buffer, values);
  Double(&buffer);
  return Download(&buffer);
}

Values Doubled(Values values) {
  for (float& value : values) value *= 2;
  return values;
}

using Devices = test::OnFakeDriver;

// --------------------------------------------------------------------------------------- contexts
TEST_F(Devices, AreThoseOfTheDriver) {
  EXPECT_EQ(GpuCount(), 1000);
  EXPECT_EQ(Device::Get(0).name(), "Pretended GPU");
  EXPECT_EQ(&Device::Get(0), &Device::Get(0));
  const GpuMemory memory = GpuMemoryOf(0);
  EXPECT_EQ(memory.total_bytes, size_t{16} << 20);  // as FAKE_MIB says
  EXPECT_LE(memory.free_bytes, memory.total_bytes);
}

TEST_F(Devices, OthersAreAnError) {
  EXPECT_EQ(FailureOf([] { Device::Get(1000); }).message,
            "context gpu(1000): this machine has 1000 GPUs, from gpu(0) on");
  EXPECT_FAILS(Code::kInvalidArgument, Device::Get(-1));
}

TEST_F(Devices, LeaveTheContextOfOthersCurrent) {
  Device& device = Device::Get(NextIndex());
  Device& other = Device::Get(NextIndex());
  ASSERT_EQ(other.driver().ContextPush(other.context()), cuda::Result::kSuccess);
  ThereAndBack(device.index(), Counting(10));
  cuda::ContextHandle current = nullptr;
  ASSERT_EQ(other.driver().ContextPop(&current), cuda::Result::kSuccess);
  EXPECT_EQ(current, other.context());
}

// ----------------------------------------------------------------------------------------- copies
TEST_F(Devices, HaveWhatWasCopiedThere) {
  const int32_t index = NextIndex();
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
    FAKE(fake_seed)(seed);
    for (const size_t count : {1, 1000, 70'000}) {
      EXPECT_EQ(ThereAndBack(index, Counting(count)), Doubled(Counting(count))) << seed;
    }
  }
}

TEST_F(Devices, TakeCopiesOfManyPieces) {
  Device& device = Device::Get(NextIndex());
  for (const size_t count : {size_t{524'288}, size_t{524'289}, size_t{2'700'001}}) {
    Buffer buffer(&device, count);
    for (int i = 0; i < 2; ++i) {  // the second finds the chunks in use
      Upload(&buffer, Counting(count));
    }
    EXPECT_EQ(Download(&buffer), Counting(count));
  }
}

// ------------------------------------------------------------------------------------------ races
TEST_F(Devices, WaitForEachOtherByEvents) {
  may_violate_ = true;
  int found = 0;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    FAKE(fake_seed)(seed);
    const int before = FAKE(fake_violations)();
    Device& device = Device::Get(NextIndex());
    Buffer buffer(&device, 100);
    Upload(&buffer, Counting(100));
    FAKE(fake_leave_out)(1);
    Double(&buffer);
    EXPECT_THROW(Download(&buffer), Error);
    found += FAKE(fake_violations)() > before ? 1 : 0;
  }
  EXPECT_EQ(found, 16) << "a wait that is left out is a race in every order";
}

TEST_F(Devices, CannotBeTouchedByTheHost) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        Buffer buffer(&Device::Get(0), 1);
        *reinterpret_cast<volatile float*>(buffer.address()) = 1;
      },
      "");
}

// ----------------------------------------------------------------------------------------- memory
TEST_F(Devices, UseBlocksAgainAfterWhatUsesThem) {
  Device& device = Device::Get(NextIndex());
  cuda::Address first = 0;
  {
    Buffer buffer(&device, 1000);
    first = buffer.address();
    Upload(&buffer, Counting(1000));
  }
  EXPECT_GT(device.blocks().kept_bytes(), 0U);
  Buffer again(&device, 1000);
  EXPECT_EQ(again.address(), first);
  Upload(&again, Doubled(Counting(1000)));
  EXPECT_EQ(Download(&again), Doubled(Counting(1000)));
}

TEST_F(Devices, GiveKeptBlocksBackWhereMemoryEnds) {
  Device& device = Device::Get(NextIndex());
  {
    Buffer half(&device, 10 << 18);
  }
  {
    Buffer other_half(&device, 5 << 18);
  }
  Buffer most(&device, 15 << 18);
  EXPECT_EQ(device.blocks().kept_bytes(), 0U);
  const auto failure = FailureOf([&] { Buffer more(&device, 2 << 18); });
  EXPECT_EQ(failure.code, Code::kResourceExhausted);
  EXPECT_EQ(
      failure.message,
      Format("allocate: gpu({}) has no 2097152 bytes of memory: 1048576 are free", device.index()));
  EXPECT_FAILS(Code::kResourceExhausted, device.blocks().Take(SIZE_MAX));
}

TEST_F(Devices, GiveABlockBackWhenItsUseHasEnded) {
  // With some seeds operations run only when the host asks.
  for (uint64_t seed = 0; seed < 8; ++seed) {
    FAKE(fake_seed)(seed);
    Device& device = Device::Get(NextIndex());
    {
      Buffer half(&device, 10 << 18);
      Buffer part(&device, 1000);
      Upload(&part, Counting(1000));
    }
    Buffer most(&device, 15 << 18);
    EXPECT_EQ(ThereAndBack(device.index(), Counting(10)), Doubled(Counting(10)));
  }
}

// --------------------------------------------------------------------------------------- failures
TEST_F(Devices, WorkAgainAfterACallThatFailedOnce) {
  for (const int result : {test::kOutOfMemory, test::kOperatingSystem}) {
    const int calls = ForEachCall(result, [&](int k) {
      const int32_t index = NextIndex();
      const auto failure = FailureOf([&] { ThereAndBack(index, Counting(3000)); });
      FAKE(fake_fail)(0, 0);
      if (!failure.code || failure.code == Code::kUnavailable) return;
      EXPECT_NE(failure.message.find(Format("gpu({})", index)), std::string::npos)
          << failure.message;
      EXPECT_EQ(ThereAndBack(index, Counting(3000)), Doubled(Counting(3000))) << "call " << k;
    });
    EXPECT_GT(calls, 60);
  }
}

TEST_F(Devices, HaveAWholeCopyOrNoneOrAreLost) {
  const Values before = Counting(530'000), after = Doubled(before);  // two pieces
  int32_t index = NextIndex();
  ForEachCall(test::kOperatingSystem, [&](int k) {
    FAKE(fake_fail)(0, 0);
    if (!Device::Get(index).is_usable()) index = NextIndex();
    Device& device = Device::Get(index);
    Buffer buffer(&device, before.size());
    Upload(&buffer, before)->Wait(kHazardPatience);
    FAKE(fake_fail)(k, test::kOperatingSystem);
    const auto failure = FailureOf([&] { Upload(&buffer, after); });
    FAKE(fake_fail)(0, 0);
    if (device.is_usable()) {
      EXPECT_EQ(Download(&buffer), failure.code ? before : after) << "call " << k;
    }
  });
}

// Checks a copy to the host whose k-th driver call fails, on a usable device.
void CheckCopyToHost(int32_t index, size_t count, int k, bool may_be_torn) {
  Device& device = Device::Get(index);
  const Values values = Counting(count), before(count, -1.0F);
  Buffer buffer(&device, count);
  Upload(&buffer, values)->Wait(kHazardPatience);
  Values target = before;
  FAKE(fake_fail)(k, test::kOperatingSystem);
  const auto failure = FailureOf([&] { Download(&buffer, &target); });
  FAKE(fake_fail)(0, 0);
  if (!failure.code) {
    EXPECT_EQ(target, values) << "call " << k;
  } else if (device.is_usable() || !may_be_torn) {
    EXPECT_EQ(target, before) << "call " << k;
  }
}

TEST_F(Devices, GiveTheHostAWholeCopyOrNoneOrAreLost) {
  int32_t index = NextIndex();
  const auto usable = [&] {
    FAKE(fake_fail)(0, 0);
    if (!Device::Get(index).is_usable()) index = NextIndex();
    return index;
  };
  ForEachCall(test::kOperatingSystem, [&](int k) {
    usable();
    CheckCopyToHost(index, 530'000, k, false);  // two pieces
  });
  int lost = 0;
  for (const int k : {2, 20, 47, 50, 53, 56, 59}) {  // more pieces than there are chunks
    CheckCopyToHost(usable(), 2'630'000, k, true);
    if (!Device::Get(index).is_usable()) ++lost;
  }
  EXPECT_GT(lost, 2);
}

TEST_F(Devices, KnowWhichWorkOfAStreamEndsWithAnother) {
  Device& device = Device::Get(NextIndex());
  Event first(&device), second(&device), other(&device), open(&device);
  const AbandonUnlessRecorded abandon(&open);
  first.Record(&device.compute());
  second.Record(&device.compute());
  for (int i = 0; i < 3; ++i) Event(&device).Record(&device.to_host());
  other.Record(&device.to_host());
  EXPECT_TRUE(first.IsCoveredBy(second));
  for (const Event* const later : {&first, &other, &open}) EXPECT_FALSE(second.IsCoveredBy(*later));
  EXPECT_FALSE(open.IsCoveredBy(second));
  EXPECT_TRUE(first.IsBefore(&device.compute()));
  EXPECT_FALSE(first.IsBefore(&device.to_host()));
  EXPECT_FALSE(open.IsBefore(&device.compute()));
  first.Wait(kHazardPatience);
  EXPECT_TRUE(first.is_known_done());
  EXPECT_TRUE(first.IsBefore(&device.to_host()));
}

TEST_F(Devices, AreLostByAnErrorThatStays) {
  Device& other = Device::Get(NextIndex());
  ForEachCall(kIllegalAddress, [&](int) {
    const int32_t index = NextIndex();
    const auto failure = FailureOf([&] { ThereAndBack(index, Counting(3000)); });
    FAKE(fake_fail)(0, 0);
    if (failure.code) {
      EXPECT_EQ(failure.code, Code::kUnavailable) << failure.message;
      EXPECT_NE(failure.message.find("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), std::string::npos);
    }
    EXPECT_EQ(ThereAndBack(other.index(), Counting(30)), Doubled(Counting(30)));
  });
}

TEST_F(Devices, ThatAreLostSayWhyAndReleaseNothing) {
  Device& device = Device::Get(NextIndex());
  Buffer buffer(&device, 100);
  const auto event = Upload(&buffer, Counting(100));
  FAKE(fake_lose)(device.index(), kIllegalAddress);
  const std::string why =
      Format("gpu({}): lost: query an event: CUDA_ERROR_ILLEGAL_ADDRESS (700)", device.index());
  EXPECT_EQ(FailureOf([&] { event->Wait(kHazardPatience); }).message, why);
  EXPECT_TRUE(event->done()) << "nothing uses the memory any more";
  const auto failure = FailureOf([&] { Double(&buffer); });
  EXPECT_EQ(failure.code, Code::kUnavailable);
  EXPECT_EQ(failure.message, why);
}

// Calls f with memory for 0, 1, ... allocations until that is enough.  After each call it calls
// `then`, with unlimited memory.
int ForEachAllocation(const std::function<void()>& f, const std::function<void()>& then) {
  for (int allocations = 0;; ++allocations) {
    const bool has_enough = !WithMemoryFor(allocations, f).ran_out;
    then();
    if (has_enough) return allocations;
  }
}

TEST_F(Devices, OpenAgainAfterAnAllocationThatFailed) {
  int32_t index = 0;
  const int allocations = ForEachAllocation(
      [&] { Device::Get(index = NextIndex()); },
      [&] { EXPECT_EQ(ThereAndBack(index, Counting(300)), Doubled(Counting(300))); });
  EXPECT_GE(allocations, 4);
}

TEST_F(Devices, SurviveEveryAllocationThatFails) {
  const int32_t index = NextIndex();
  const auto work = [&] { ThereAndBack(index, Counting(300)); };
  const auto check = [&] { EXPECT_EQ(ThereAndBack(index, Counting(300)), Doubled(Counting(300))); };
  EXPECT_GT(ForEachAllocation(work, check), 10);
}

TEST_F(Devices, RefuseATextThatTheDriverDoesNotTake) {
  Device& device = Device::Get(NextIndex());
  const auto failure = FailureOf([&] {
    device.modules().Find("bad", "tkv", 256, [] { return std::string("fma.rn.f32 a, b;"); });
  });
  EXPECT_EQ(failure.code, Code::kUnimplemented);
  EXPECT_NE(failure.message.find("CUDA_ERROR_INVALID_PTX (218): line 1"), std::string::npos)
      << failure.message;
}

// ------------------------------------------------------------------------------------------ waits
TEST_F(Devices, AreWaitedForWithPatience) {
  Device& device = Device::Get(NextIndex());
  Buffer buffer(&device, 100);
  FAKE(fake_stop)(1);
  const auto event = Upload(&buffer, Counting(100));
  EXPECT_FALSE(event->done());
  EXPECT_FAILS(Code::kDeadlineExceeded, event->Wait(std::chrono::milliseconds(1)));
  FAKE(fake_stop)(0);
  event->Wait(kHazardPatience);
  EXPECT_TRUE(event->done());
}

TEST_F(Devices, AreWaitedForUntilTheInterrupt) {
  Device& device = Device::Get(NextIndex());
  Buffer buffer(&device, 100);
  FAKE(fake_stop)(1);
  const auto event = Upload(&buffer, Counting(100));
  SetGpuInterrupt([] { throw Error(Code::kCancelled, "the user"); });
  EXPECT_FAILS(Code::kCancelled, event->Wait(kHazardPatience));
  EXPECT_FAILS(Code::kCancelled, Download(&buffer));
  SetGpuInterrupt({});
  FAKE(fake_stop)(0);
  EXPECT_EQ(Download(&buffer), Counting(100));
}

// -------------------------------------------------------------------------- threads and processes
TEST_F(Devices, ServeSeveralThreads) {
  const int32_t index = NextIndex();
  std::vector<std::thread> threads;
  for (size_t i = 1; i <= 4; ++i) {
    threads.emplace_back([=] {
      for (size_t round = 0; round < 20; ++round) {
        const Values values = Counting(i * 100 + round);
        EXPECT_EQ(ThereAndBack(index, values), Doubled(values));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Devices, AreNotOfAChildOfFork) {
  const int32_t index = NextIndex();
  Device& device = Device::Get(index);
  auto buffer = std::make_unique<Buffer>(&device, 100);
  const auto event = Upload(buffer.get(), Counting(100));
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    const int calls = FAKE(fake_calls)();
    bool ok = GpuCount() == 0;
    ok = ok && FailureOf([&] { Device::Get(index); }).code == Code::kFailedPrecondition;
    ok = ok && FailureOf([&] { Double(buffer.get()); }).code == Code::kFailedPrecondition;
    ok = ok && event->done();
    buffer.reset();
    _exit(ok && FAKE(fake_calls)() == calls ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(Download(buffer.get()), Counting(100));
}

TEST_F(Devices, MayBeAtWorkWhenTheProcessEnds) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        static Buffer buffer(&Device::Get(0), 100);
        FAKE(fake_stop)(1);
        Upload(&buffer, Counting(100));
        std::exit(0);
      },
      testing::ExitedWithCode(0), "^$");
}

// ---------------------------------------------------------------------------- drivers that are bad
// Runs in another process, whose driver has this environment variable.
void ExpectWithout(const char* name, const char* value, Code code, const char* message) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        setenv(name, value, 1);
        const int count = GpuCount();
        const auto failure = FailureOf([] { Device::Get(0); });
        if (failure.message != message) std::fprintf(stderr, "%s\n", failure.message.c_str());
        std::_Exit(count == 0 && failure.code == code && failure.message == message ? 0 : 1);
      },
      testing::ExitedWithCode(0), "^$")
      << name;
}

TEST(BadDriver, ThatIsTooOldIsNone) {
  ExpectWithout(
      "FAKE_VERSION", "9020", Code::kUnimplemented,
      "context gpu(0): the NVIDIA driver is for CUDA 9.2, at least 10.0 is needed; cpu(i) "
      "is host memory");
}

TEST(BadDriver, ThatDoesNotStartIsNone) {
  ExpectWithout("FAKE_INIT", "803", Code::kUnavailable,
                "context gpu(0): the NVIDIA driver does not start: "
                "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803); cpu(i) is host memory");
}

TEST(BadDriver, ThatKnowsNoDeviceIsNone) {
  ExpectWithout("FAKE_INIT", "100", Code::kUnimplemented,
                "context gpu(0): the NVIDIA driver knows no GPU; cpu(i) is host memory");
}

}  // namespace
}  // namespace tkv
