// GPU memory shared between arrays and another framework, on the fake driver.  The framework works
// late and on its own streams, and frees memory as early as it may.

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <thread>
#include <utility>

#include "device/device.h"
#include "tests/arrays.h"
#include "tests/gpu/fake/fixture.h"
#include "tests/scarce_memory.h"
#include "tkv/dlpack.h"
#include "tkv/tkv.h"

namespace tkv {
namespace {

using test::FailureOf;
using test::Floats;
using test::Full;
using test::NextIndex;
using test::WithMemoryFor;
using Values = std::vector<float>;

std::vector<float> ValuesOf(const NDArray& array) {
  return test::Values(array.WithContext(Context::Cpu()));
}

constexpr size_t kCount = 96;

// Returns one of the devices on which no failure is injected.
int32_t Sound(uint64_t seed = 0) { return 990 + static_cast<int32_t>(seed % 8); }

Values Counting(float first = 1) {
  Values values(kCount);
  for (size_t i = 0; i < kCount; ++i) values[i] = first + static_cast<float>(i);
  return values;
}

Values Plus(Values values, float more) {
  for (float& value : values) value += more;
  return values;
}

// Simulates another framework on one device.  The framework works on one stream, orders its work by
// events as DLPack requires, and never waits for the device.
class Framework {
 public:
  explicit Framework(int32_t index, unsigned stream_flags = cuda::kNonBlocking)
      : device_(Device::Get(index)) {
    Do(driver().StreamCreate, &stream_, stream_flags, 0);
    Begin();
  }
  Framework(int32_t index, int64_t stream)
      : device_(Device::Get(index)), stream_(reinterpret_cast<cuda::StreamHandle>(stream)) {
    Begin();
  }

  ~Framework() {
    const bool has_ended = device_.Call(driver().EventQuery, end_) == cuda::Result::kSuccess;
    if (has_ended) device_.Call(driver().MemFreeHost, pinned_);
  }
  Framework(const Framework&) = delete;
  Framework& operator=(const Framework&) = delete;

  int64_t stream() const { return reinterpret_cast<int64_t>(stream_); }
  int32_t index() const { return device_.index(); }

  // Makes later work on `stream` wait for all work so far on the framework's own stream.
  void LetWait(uint64_t stream) {
    cuda::EventHandle event = nullptr;
    Do(driver().EventCreate, &event, cuda::kDisableTiming);
    Do(driver().EventRecord, event, stream_);
    Do(driver().StreamWaitEvent, reinterpret_cast<cuda::StreamHandle>(stream), event, 0U);
    Do(driver().EventDestroy, event);
  }

  cuda::Address Allocate() {
    cuda::Address address = 0;
    Do(driver().MemAlloc, &address, kCount * sizeof(float));
    return address;
  }
  void Free(cuda::Address address) { Do(driver().MemFree, address); }

  void Write(cuda::Address target, const Values& values) {
    Wait();
    std::memcpy(pinned_, values.data(), values.size() * sizeof(float));
    Do(driver().CopyToDevice, target, static_cast<const void*>(pinned_),
       values.size() * sizeof(float), stream_);
    Do(driver().EventRecord, end_, stream_);
  }
  // Reads in the order of the stream, without waiting for other writers.
  Values Read(cuda::Address source) {
    Wait();
    Ask(source);
    return Take();
  }
  void Ask(cuda::Address source) {
    Do(driver().CopyToHost, pinned_, source, kCount * sizeof(float), stream_);
    Do(driver().EventRecord, end_, stream_);
  }
  Values Take() {
    Wait();
    Values values(kCount);
    std::memcpy(values.data(), pinned_, kCount * sizeof(float));
    return values;
  }
  void Wait() {
    cuda::Result result = cuda::Result::kNotReady;
    while (result == cuda::Result::kNotReady) result = device_.Call(driver().EventQuery, end_);
    if (result != cuda::Result::kSuccess)
      throw Fail(Code::kUnavailable, "framework: {}", driver().Describe(result));
  }

  const cuda::Driver& driver() const { return device_.driver(); }
  template <typename... Parameters, typename... Arguments>
  void Do(cuda::Result (*function)(Parameters...), Arguments... arguments) {
    const cuda::Result result = device_.Call(function, arguments...);
    if (result != cuda::Result::kSuccess)
      throw Fail(Code::kUnavailable, "framework: {}", driver().Describe(result));
  }

 private:
  void Begin() {
    Do(driver().MemHostAlloc, &pinned_, kCount * sizeof(float), cuda::kPortable);
    Do(driver().EventCreate, &end_, cuda::kDisableTiming);
  }

  Device& device_;
  cuda::StreamHandle stream_ = nullptr;
  cuda::EventHandle end_ = nullptr;
  void* pinned_ = nullptr;
};

// A tensor of a framework.  Its deleter frees the memory at the moment when its consumer releases
// it.
struct Tensor {
  explicit Tensor(Framework* f) : framework(*f), address(f->Allocate()) {
    managed.version = {1, 1};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) {
      auto* const tensor = static_cast<Tensor*>(self->manager_ctx);
      ++tensor->deleted;
      if (tensor->when_deleted) std::exchange(tensor->when_deleted, nullptr)();
      if (tensor->is_freed_by_deleter) tensor->framework.Free(tensor->address);
    };
    managed.dl_tensor = {.data = reinterpret_cast<void*>(address),
                         .device = {kDLCUDA, f->index()},
                         .ndim = 1,
                         .dtype = {kDLFloat, 32, 1},
                         .shape = shape,
                         .strides = nullptr,
                         .byte_offset = 0};
  }

  // Drains all work, so that the deleter is not called later.
  ~Tensor() {
    FAKE(fake_stop)(0);
    FailureOf([] { WaitAll(); });
  }

  // Imports the tensor as Python does, with `__dlpack__(stream=GpuStream(i))`.
  NDArray Import() {
    framework.LetWait(GpuStream(framework.index()));
    return FromDLPack(&managed);
  }
  // Imports it for one call, after which the framework's stream waits for our work.
  NDArray ImportForCall() {
    NDArray array = Import();
    array.storage()->SetOwnerStream(static_cast<uint64_t>(framework.stream()));
    return array;
  }
  void Has(const std::vector<int64_t>& extents, const std::vector<int64_t>& steps) {
    std::ranges::copy(extents, shape);
    std::ranges::copy(steps, strides);
    managed.dl_tensor.ndim = static_cast<int32_t>(extents.size());
    managed.dl_tensor.strides = steps.empty() ? nullptr : strides;
  }

  Framework& framework;
  const cuda::Address address;
  int64_t shape[8] = {static_cast<int64_t>(kCount)};
  int64_t strides[8] = {};
  int deleted = 0;
  bool is_freed_by_deleter = false;
  std::function<void()> when_deleted;
  DLManagedTensorVersioned managed{};
};

// Releases owners kept for ended work.
void ReleaseOwners() {
  FailureOf([] { WaitAll(); });
  NDArray::Empty({1}, DType::kF32, Context::Gpu(Sound()));
}

// Waits until the device's compute stream is idle, without noting the end of any array's operation.
void AwaitAllOf(int32_t index) {
  Device& device = Device::Get(index);
  Event event(&device);
  event.Record(&device.compute());
  event.Wait(kHazardPatience);
}

using SharedMemory = test::OnFakeDriver;

// ------------------------------------------------------------------------- many tensors of one
// call
TEST_F(SharedMemory, OfManyTensorsIsReadyAfterOneWaitForEachStream) {
  const Context there = Context::Gpu(Sound());
  for (uint64_t seed = 0; seed < 200; ++seed) {
    FAKE(fake_seed)(seed);
    Framework one(Sound(seed)), other(Sound(seed)), elsewhere(Sound(seed + 1));
    std::deque<Tensor> tensors;
    DLPackLoans loans;
    std::vector<NDArray> arrays;
    for (Framework* const framework : {&one, &one, &other, &elsewhere}) {
      Tensor& tensor = tensors.emplace_back(framework);
      framework->Write(tensor.address, Counting(static_cast<float>(tensors.size())));
      loans.Follow(framework->index(), static_cast<uint64_t>(framework->stream()));
      arrays.push_back(loans.Take(&tensor.managed));
    }
    loans.End();
    for (size_t i = 0; i < arrays.size(); ++i) {
      const NDArray array = seed % 2 == 0 ? arrays[i] : arrays[i].WithContext(there);
      EXPECT_EQ(ValuesOf(array), Counting(static_cast<float>(i + 1))) << seed;
    }
  }
}

// Releases an owner during an import; the owner's deleter imports another tensor.
TEST_F(SharedMemory, OfManyTensorsIsReadyWhereAnOwnerTakesOneMeanwhile) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    FAKE(fake_seed)(seed);
    Framework framework(Sound(seed)), other(Sound(seed));
    Tensor first(&framework), inner(&other), outer(&framework);
    const auto take = [](Tensor* tensor, DLPackLoans* loans) {
      Framework& owner = tensor->framework;
      loans->Follow(owner.index(), static_cast<uint64_t>(owner.stream()));
      return loans->Take(&tensor->managed);
    };
    bool is_written = false;
    int taken = 0;
    first.when_deleted = [&] {
      ++taken;
      if (!is_written) return;  // this early the device is stopped, and a wait would not end
      const auto failure = FailureOf([&] {  // a deleter throws nothing
        other.Write(inner.address, Counting(7));
        DLPackLoans loans;
        const NDArray array = seed % 2 == 0 ? take(&inner, &loans) : inner.Import();
        loans.End();
        EXPECT_EQ(ValuesOf(array), Counting(7));
      });
      EXPECT_FALSE(failure.code) << failure.message;
    };
    FAKE(fake_stop)(1);
    // The owner is kept until a look at the device shows that the write has ended.
    Fill(first.ImportForCall(), 1);
    FAKE(fake_stop)(0);
    AwaitAllOf(framework.index());
    is_written = true;
    framework.Write(outer.address, Counting());
    DLPackLoans loans;
    EXPECT_EQ(taken, 0);
    const NDArray array = take(&outer, &loans);
    EXPECT_EQ(taken, 1);
    loans.End();
    EXPECT_EQ(ValuesOf(array), Counting()) << seed;
  }
}

TEST_F(SharedMemory, OfAnotherThreadsDefaultStreamIsWaitedForByTheHost) {
  Framework framework(Sound(), int64_t{kPerThreadStream});
  Tensor tensor(&framework);
  const NDArray array = tensor.ImportForCall();
  std::thread([&] { Fill(array, 3); }).join();
  EXPECT_EQ(framework.Read(tensor.address), Values(kCount, 3.0F));
}

TEST_F(SharedMemory, ThatALostGpuHasUsedBeforeIsUsedAsIfNothingWere) {
  const int32_t lost = NextIndex();
  const NDArray array = test::Full({3}, 1, DType::kF32, Context::Gpu(Sound()));
  const NDArray copy = array.WithContext(Context::Gpu(lost));
  AwaitAllOf(lost);  // without noting the end of the copy
  DLManagedTensorVersioned* const exported = ToDLPackVersioned(array, kNoStream);
  Device::Get(lost).Lose("test", cuda::Result::kLaunchFailed);
  Fill(array, 2);
  EXPECT_EQ(ValuesOf(array), Values(3, 2.0F));
  exported->deleter(exported);
}

TEST_F(SharedMemory, OfAStreamThatIsCapturedIsRefusedBeforeItIsTaken) {
  Framework framework(Sound());
  FAKE(fake_capture)(reinterpret_cast<void*>(framework.stream()), 1);
  DLPackLoans loans;
  EXPECT_FAILS(Code::kFailedPrecondition,
               loans.Follow(Sound(), static_cast<uint64_t>(framework.stream())));
  FAKE(fake_capture)(reinterpret_cast<void*>(framework.stream()), 0);
}

// ----------------------------------------------------------------------------------------- import
TEST_F(SharedMemory, IsReadAfterItsOwnerHasWrittenIt) {
  const Context there = Context::Gpu(Sound());
  for (uint64_t seed = 0; seed < 200; ++seed) {
    FAKE(fake_seed)(seed);
    Framework framework(Sound(seed), seed % 2 == 0 ? cuda::kNonBlocking : 0U);
    Tensor tensor(&framework);
    framework.Write(tensor.address, Counting());
    const NDArray array = tensor.Import();
    EXPECT_EQ(array.context(), Context::Gpu(framework.index()));
    EXPECT_EQ(array.data(), tensor.managed.dl_tensor.data);
    switch (seed % 4) {  // each on another one of our streams
      case 0:
        EXPECT_EQ(ValuesOf(array), Counting()) << seed;
        break;
      case 1:
        EXPECT_EQ(ValuesOf(Binary(BinaryOp::kAdd, array, 1)), Plus(Counting(), 1)) << seed;
        break;
      case 2:
        EXPECT_EQ(ValuesOf(array.WithContext(there)), Counting()) << seed;
        break;
      default:
        array.CopyFrom(Full({static_cast<int64_t>(kCount)}, 3));
        EXPECT_EQ(framework.Read(tensor.address), Values(kCount, 3)) << seed;
    }
    ASSERT_EQ(FAKE(fake_violations)(), violations_) << "seed " << seed;
  }
}

TEST_F(SharedMemory, IsReadAfterTheDefaultStreamsHaveWrittenIt) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    FAKE(fake_seed)(seed);
    const int32_t index = Sound(seed);
    Framework producer(index, static_cast<int64_t>(seed % 3)), blocking(index, 0U);
    Tensor tensor(&producer);
    producer.Write(tensor.address, Counting());
    const NDArray array = tensor.Import();
    EXPECT_EQ(ValuesOf(array), Counting());
    if (seed % 3 == 2) continue;  // the legacy stream orders other blocking streams by itself
    producer.Write(tensor.address, Counting(5));
    EXPECT_EQ(blocking.Read(tensor.address), Counting(5));
  }
}

TEST_F(SharedMemory, IsUsedByItsOwnerAfterTheCallWithoutAWait) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    FAKE(fake_seed)(seed);
    Framework framework(Sound(seed));
    Tensor tensor(&framework);
    framework.Write(tensor.address, Counting());
    const NDArray array = tensor.Import();
    BinaryInto(BinaryOp::kAdd, array, 1, array);
    EXPECT_EQ(framework.Read(tensor.address), Plus(Counting(), 1));
    const NDArray copy = array.Copy();
    framework.Write(tensor.address, Counting(7));
    EXPECT_EQ(ValuesOf(copy), Plus(Counting(), 1)) << seed;
  }
}

TEST_F(SharedMemory, IsUsedByTheStreamOfItsOwnerWithoutTheHost) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    FAKE(fake_seed)(seed);
    Framework framework(Sound(seed));
    Tensor tensor(&framework);
    framework.Write(tensor.address, Counting());
    framework.Wait();
    FAKE(fake_stop)(1);  // a host that waits here would wait forever
    NDArray copy;
    {
      const NDArray array = tensor.ImportForCall();
      copy = array.Copy();
      array.CopyFrom(Floats(Counting(3)));
      BinaryInto(BinaryOp::kAdd, array, array, array);
    }
    EXPECT_EQ(tensor.deleted, 0) << "work under way uses the memory";
    FAKE(fake_stop)(0);
    Values twice = Counting(3);
    for (float& value : twice) value *= 2;
    EXPECT_EQ(framework.Read(tensor.address), twice) << seed;
    EXPECT_EQ(ValuesOf(copy), Counting()) << seed;
    WaitAll();
    EXPECT_EQ(tensor.deleted, 1);
  }
}

TEST_F(SharedMemory, IsFreedByItsOwnerNoEarlierThanTheDeviceHasUsedIt) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    FAKE(fake_seed)(seed);
    Framework framework(Sound(seed));
    Tensor tensor(&framework);
    tensor.is_freed_by_deleter = true;
    framework.Write(tensor.address, Counting());
    const NDArray copy = tensor.ImportForCall().Copy();
    while (tensor.deleted == 0) NDArray::Empty({1}, DType::kF32, copy.context());
    EXPECT_EQ(ValuesOf(copy), Counting());
    ASSERT_EQ(FAKE(fake_violations)(), violations_) << "seed " << seed;
  }
}

TEST_F(SharedMemory, ThatIsFreedTooEarlyIsFound) {
  may_violate_ = true;
  Framework framework(NextIndex());
  Tensor tensor(&framework);
  framework.Write(tensor.address, Counting());
  framework.Wait();
  FAKE(fake_stop)(1);
  const NDArray copy = tensor.ImportForCall().Copy();
  framework.Free(tensor.address);
  FAKE(fake_stop)(0);
  EXPECT_THROW(ValuesOf(copy), Error);
  EXPECT_GT(FAKE(fake_violations)(), violations_);
}

TEST_F(SharedMemory, NeedsEveryWait) {
  may_violate_ = true;
  // Skips a wait: first our stream's wait for the owner's writes, then the owner's stream's wait
  // for our work.
  for (const int wait : {1, 2}) {
    for (uint64_t seed = 0; seed < 16; ++seed) {
      FAKE(fake_seed)(seed);
      const int before = FAKE(fake_violations)();
      Framework framework(NextIndex());
      Tensor tensor(&framework);
      FAKE(fake_stop)(1);  // the host sees no operation end
      framework.Write(tensor.address, Counting());
      FAKE(fake_leave_out)(wait);
      Fill(tensor.ImportForCall(), 1);
      framework.Ask(tensor.address);
      FAKE(fake_stop)(0);
      FailureOf([&] { framework.Take(); });
      FailureOf([] { WaitAll(); });
      EXPECT_GT(FAKE(fake_violations)(), before) << "wait " << wait << ", seed " << seed;
    }
  }
}

TEST_F(SharedMemory, GoesThereAndBackInEveryOrder) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    FAKE(fake_seed)(seed);
    Framework framework(Sound(seed));
    Tensor tensor(&framework);
    framework.Write(tensor.address, Counting());
    BinaryInto(BinaryOp::kAdd, tensor.ImportForCall(), 1, tensor.ImportForCall());
    EXPECT_EQ(framework.Read(tensor.address), Plus(Counting(), 1));
    ASSERT_EQ(FAKE(fake_violations)(), violations_) << "seed " << seed;
  }
}

// ----------------------------------------------------------------------------------------- export
TEST_F(SharedMemory, IsReadByAConsumerAfterItWasWritten) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    FAKE(fake_seed)(seed);
    const int32_t index = Sound(seed);
    Framework own(index), legacy(index, kLegacyStream), per_thread(index, kPerThreadStream);
    Framework& consumer = *std::array{&own, &legacy, &per_thread}[seed % 3];
    const NDArray array = Floats(Counting()).WithContext(Context::Gpu(index));
    BinaryInto(BinaryOp::kAdd, array, 1, array);
    DLManagedTensorVersioned* const managed = ToDLPackVersioned(array, consumer.stream());
    EXPECT_EQ(managed->dl_tensor.device.device_type, kDLCUDA);
    EXPECT_EQ(managed->dl_tensor.device.device_id, index);
    const auto address = reinterpret_cast<cuda::Address>(managed->dl_tensor.data);
    EXPECT_EQ(consumer.Read(address), Plus(Counting(), 1)) << seed;
    EXPECT_TRUE(array.storage()->foreign());
    BinaryInto(BinaryOp::kAdd, array, 1, array);  // ends before it returns
    EXPECT_EQ(consumer.Read(address), Plus(Counting(), 2)) << seed;
    consumer.Write(address, Counting(40));
    consumer.LetWait(GpuStream(index));
    EXPECT_EQ(ValuesOf(Binary(BinaryOp::kAdd, array, 1)), Plus(Counting(40), 1)) << seed;
    managed->deleter(managed);
    ASSERT_EQ(FAKE(fake_violations)(), violations_) << "seed " << seed;
  }
}

TEST_F(SharedMemory, OfAConsumerThatDoesNotWaitIsARaceOfItsOwn) {
  may_violate_ = true;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    FAKE(fake_seed)(seed);
    const int before = FAKE(fake_violations)();
    const int32_t index = NextIndex();
    Framework consumer(index);
    FAKE(fake_stop)(1);  // the host sees no operation end
    const NDArray array = Full({static_cast<int64_t>(kCount)}, 1, DType::kF32, Context::Gpu(index));
    if (seed % 2 == 1) FAKE(fake_leave_out)(1);
    auto* const managed = ToDLPackVersioned(array, seed % 2 == 1 ? consumer.stream() : kNoStream);
    consumer.Ask(reinterpret_cast<cuda::Address>(array.data()));
    FAKE(fake_stop)(0);
    FailureOf([&] { consumer.Take(); });
    FailureOf([] { WaitAll(); });
    EXPECT_GT(FAKE(fake_violations)(), before) << seed;
    managed->deleter(managed);
  }
}

TEST_F(SharedMemory, OfALegacyConsumerHasTheSameOrder) {
  const int32_t index = Sound();
  Framework consumer(index);
  const NDArray array = Floats(Counting()).WithContext(Context::Gpu(index));
  DLManagedTensor* const managed = ToDLPack(array, consumer.stream());
  EXPECT_EQ(consumer.Read(reinterpret_cast<cuda::Address>(managed->dl_tensor.data)), Counting());
  managed->deleter(managed);
}

TEST_F(SharedMemory, IsExportedToStreamsThatThereAre) {
  const NDArray array = Full({3}, 1, DType::kF32, Context::Gpu(0));
  EXPECT_EQ(
      FailureOf([&] { ToDLPackVersioned(array, 0); }).message,
      "dlpack: stream 0; 1 is the legacy default stream, 2 that of each thread, a larger number "
      "a CUstream, and -1 none");
  EXPECT_FAILS(Code::kInvalidArgument, ToDLPack(array, -2));
  EXPECT_FALSE(array.storage()->foreign());
}

// ----------------------------------------------------------------------------------------- graphs
TEST_F(SharedMemory, IsNotHandedToAStreamThatIsCaptured) {
  const int32_t index = Sound();
  Framework framework(index, 0U);
  const NDArray array = Full({3}, 1, DType::kF32, Context::Gpu(index));
  FAKE(fake_capture)(reinterpret_cast<void*>(framework.stream()), 1);
  for (const int64_t stream : {framework.stream(), kLegacyStream}) {
    const auto failure = FailureOf([&] { ToDLPackVersioned(array, stream); });
    EXPECT_EQ(failure.code, Code::kFailedPrecondition) << failure.message;
    EXPECT_NE(failure.message.find("captured into a CUDA graph"), std::string::npos);
    EXPECT_FAILS(Code::kFailedPrecondition, CheckNotCaptured(index, static_cast<uint64_t>(stream)));
  }
  EXPECT_FALSE(array.storage()->foreign());
  FAKE(fake_capture)(reinterpret_cast<void*>(framework.stream()), 0);
  CheckNotCaptured(index, static_cast<uint64_t>(framework.stream()));
}

TEST_F(SharedMemory, IsNotTakenWhileTheStreamOfArraysIsCaptured) {
  Framework framework(Sound());
  Tensor tensor(&framework);
  framework.Write(tensor.address, Counting());
  framework.LetWait(GpuStream(framework.index()));
  void* const ours = reinterpret_cast<void*>(GpuStream(framework.index()));
  FAKE(fake_capture)(ours, 1);
  EXPECT_FAILS(Code::kFailedPrecondition, FromDLPack(&tensor.managed));
  EXPECT_EQ(tensor.deleted, 0);
  FAKE(fake_capture)(ours, 0);
  EXPECT_EQ(ValuesOf(FromDLPack(&tensor.managed)), Counting());
}

// ------------------------------------------------------------------------------- what tensors say
TEST_F(SharedMemory, IsWhereItsTensorSays) {
  const int32_t index = Sound(), other = Sound(1);
  Framework framework(index);
  Tensor tensor(&framework);
  tensor.managed.dl_tensor.device.device_id = other;
  EXPECT_EQ(FailureOf([&] { FromDLPack(&tensor.managed); }).message,
            Format("array: its memory is that of gpu({}), and not of gpu({})", index, other));
  tensor.managed.dl_tensor.device.device_id = index;
  Values host(kCount);
  void* pinned = nullptr;
  framework.Do(framework.driver().MemHostAlloc, &pinned, kCount * sizeof(float), cuda::kPortable);
  for (void* const data : {static_cast<void*>(host.data()), pinned}) {
    tensor.managed.dl_tensor.data = data;
    EXPECT_EQ(FailureOf([&] { FromDLPack(&tensor.managed); }).message,
              Format("array: its memory is the host's, and not that of gpu({})", index));
  }
  tensor.managed.dl_tensor.data = reinterpret_cast<void*>(tensor.address);
  tensor.shape[0] = 2000;  // begins on the device and ends outside of its memory
  EXPECT_FAILS(Code::kInvalidArgument, FromDLPack(&tensor.managed));
  tensor.shape[0] = 5;
  tensor.managed.dl_tensor.byte_offset = 2;
  EXPECT_EQ(
      FailureOf([&] { FromDLPack(&tensor.managed); }).message,
      Format("array: memory on gpu({}) at 2 bytes beyond a multiple of 4, the size of a float32",
             index));
  for (const int32_t wrong : {-1, 1000}) {
    tensor.managed.dl_tensor.device.device_id = wrong;
    EXPECT_FAILS(Code::kInvalidArgument, FromDLPack(&tensor.managed));
  }
  EXPECT_EQ(tensor.deleted, 0) << "a refused tensor still belongs to the caller";
}

TEST_F(SharedMemory, MayBeManagedOrPinned) {
  Framework framework(Sound());
  Tensor tensor(&framework);
  cuda::Address managed = 0;
  using Allocate = cuda::Result(cuda::Address*, size_t, unsigned);
  framework.Do(test::Fake<Allocate>("cuMemAllocManaged"), &managed, size_t{4 * kCount}, 1U);
  framework.Write(managed, Counting());
  tensor.managed.dl_tensor.data = reinterpret_cast<void*>(managed);
  tensor.managed.dl_tensor.device.device_type = kDLCUDAManaged;
  EXPECT_EQ(ValuesOf(tensor.Import()), Counting());
  Tensor host(&framework);
  Values pinned = Counting(9);
  host.managed.dl_tensor.data = pinned.data();
  host.managed.dl_tensor.device.device_type = kDLCUDAHost;
  const NDArray array = FromDLPack(&host.managed);
  EXPECT_EQ(array.context(), Context::Cpu());
  EXPECT_EQ(test::Values(array), Counting(9));
}

TEST_F(SharedMemory, OfNoElementsNeedsNone) {
  Framework framework(Sound());
  Tensor tensor(&framework);
  tensor.shape[0] = 0;
  tensor.managed.dl_tensor.data = nullptr;
  EXPECT_EQ(ValuesOf(FromDLPack(&tensor.managed)), Values());
  EXPECT_EQ(tensor.deleted, 1);
}

// ---------------------------------------------------------------------------------------- strides
TEST_F(SharedMemory, InRowsAtOneDistanceIsReadAndWritten) {
  const struct {
    std::vector<int64_t> shape, strides;
  } forms[] = {{{4, 3}, {7, 1}},
               {{8}, {2}},
               {{2, 3, 2}, {12, 4, 2}},
               {{2, 2, 3}, {40, 3, 1}},
               {{5, 1, 3}, {9, 100, 1}}};
  for (uint64_t seed = 0; seed < 40; ++seed) {
    FAKE(fake_seed)(seed);
    for (const auto& form : forms) {
      Framework framework(Sound(seed));
      Tensor tensor(&framework);
      Values model = Counting();
      framework.Write(tensor.address, model);
      tensor.Has(form.shape, form.strides);
      const NDArray view = tensor.Import();
      const NDArray host =
          NDArray::Wrap(model.data(), view.shape(), DType::kF32, {}, false, nullptr, form.strides);
      EXPECT_FALSE(view.contiguous());
      EXPECT_EQ(ValuesOf(view), test::Values(host));
      EXPECT_EQ(ValuesOf(ConvertFloat(view, DType::kF64)).size(), size_t(view.size()));
      for (const NDArray& array : {view, host}) {
        Fill(array.At(1), 50);
        BinaryInto(BinaryOp::kMul, array, array, array);
        BinaryInto(BinaryOp::kAdd, array.Slice(0, 1), 2, array.Slice(1, 2));
      }
      view.CopyFrom(Binary(BinaryOp::kAdd, view.WithContext(Context::Gpu(Sound(seed + 1))), 1));
      host.CopyFrom(Binary(BinaryOp::kAdd, host, 1));
      EXPECT_EQ(framework.Read(tensor.address), model) << seed;
      view.CopyFrom(host);
      EXPECT_EQ(framework.Read(tensor.address), model) << seed;
      auto* const exported = ToDLPackVersioned(view, framework.stream());
      EXPECT_EQ(exported->dl_tensor.strides[0], form.strides[0]);
      exported->deleter(exported);
    }
  }
}

TEST_F(SharedMemory, InOtherStridesIsRefusedWithThem) {
  Framework framework(0);
  const auto refused = [&](const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
    Tensor tensor(&framework);
    tensor.managed.dl_tensor.byte_offset = 160;
    tensor.Has(shape, strides);
    const auto failure = FailureOf([&] { FromDLPack(&tensor.managed); });
    EXPECT_EQ(failure.code, Code::kUnimplemented) << failure.message;
    EXPECT_EQ(tensor.deleted, 0);
    return failure.message;
  };
  EXPECT_EQ(refused({3, 4}, {1, 3}),
            "array: strides (1, 3) of shape (3, 4) on gpu(0), where elements lie in C order, or in "
            "such rows at one distance of less than 2 GiB; copy it first");
  refused({4}, {-1});
  refused({4}, {0});
  refused({2, 3}, {0, 1});
  refused({2, 3}, {-3, 1});
  refused({2, 3}, {2, 1});
  refused({2, 2, 3}, {7, 4, 1});
  refused({2, 1}, {int64_t{1} << 29, 1});
}

TEST_F(SharedMemory, OfHostileTensorsIsRefusedOrWithinItsBounds) {
  std::mt19937_64 random(7);
  const auto any = [&](std::initializer_list<int64_t> values) {
    return values.begin()[random() % values.size()];
  };
  Framework framework(Sound());
  Tensor source(&framework);
  framework.Write(source.address, Counting());
  int accepted = 0, refused = 0;
  for (int round = 0; round < 4000; ++round) {
    Tensor& tensor = *std::make_unique<Tensor>(source).release();  // its deleter may be called late
    DLTensor& said = tensor.managed.dl_tensor;
    tensor.managed.manager_ctx = &tensor;
    said.shape = tensor.shape;
    said.ndim = static_cast<int32_t>(any({0, 1, 2, 3, 2, 1, -1, 33, INT32_MAX}));
    if (said.ndim == 33 || said.ndim == INT32_MAX) {
      tensor.managed.dl_tensor.shape = nullptr;  // must not be read
    }
    for (int axis = 0; axis < 8; ++axis) {
      tensor.shape[axis] = any({0, 1, 2, 3, 4, 2, 3, -1, int64_t{1} << 31, INT64_MAX, INT64_MIN});
      tensor.strides[axis] =
          any({1, 1, 3, 4, 9, 12, 0, -1, -3, INT64_MAX, INT64_MIN, int64_t{1} << 55});
    }
    if (random() % 3 != 0) said.strides = tensor.strides;
    if (random() % 16 == 0) said.data = nullptr;
    if (random() % 16 == 0) said.data = reinterpret_cast<void*>(UINTPTR_MAX - 7);
    said.byte_offset = static_cast<uint64_t>(any({0, 0, 0, 4, 8, 2, 400, INT64_MAX, -4}));
    said.dtype.bits = static_cast<uint8_t>(any({32, 32, 32, 32, 16, 64, 8, 7, 0}));
    said.dtype.lanes = static_cast<uint16_t>(any({1, 1, 1, 1, 1, 1, 4, 0}));
    said.device.device_id = static_cast<int32_t>(
        any({framework.index(), framework.index(), framework.index(), 0, -1, INT32_MAX}));
    framework.LetWait(GpuStream(framework.index()));
    const auto failure = FailureOf([&] {
      const NDArray array = FromDLPack(&tensor.managed);
      const NDArray copy = array.Copy();
      EXPECT_TRUE(test::SameBytes(copy.WithContext({}), array.WithContext({})));
      if (!array.read_only()) array.CopyFrom(copy);
    });
    EXPECT_EQ(tensor.deleted, failure.code ? 0 : 1) << failure.message;
    (failure.code ? refused : accepted) += 1;
    ASSERT_EQ(FAKE(fake_violations)(), violations_) << "round " << round;
    delete &tensor;
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 1000);
  EXPECT_EQ(framework.Read(source.address), Counting());
}

// --------------------------------------------------------------------------------------- failures
bool IsUsable(int32_t gpu) {
  return FailureOf([&] { CheckUsable(Context::Gpu(gpu)); }).code != Code::kUnavailable;
}

// Calls f(k, gpu) with the k-th driver call failing, until f makes fewer calls.  Each time on a GPU
// that is not lost.  Returns the number of failing k.
template <typename F>
int ForEachCall(F f) {
  int32_t gpu = NextIndex();
  return test::ForEachCall(test::kOperatingSystem, [&](int k) {
    FAKE(fake_fail)(0, 0);
    if (!IsUsable(gpu)) gpu = NextIndex();
    f(k, gpu);
  });
}

TEST_F(SharedMemory, IsItsOwnersAfterACallThatFails) {
  const int calls = ForEachCall([](int k, int32_t index) {
    Framework framework(index);
    Tensor tensor(&framework);
    framework.Write(tensor.address, Counting());
    framework.LetWait(GpuStream(index));
    FAKE(fake_fail)(k, test::kOperatingSystem);
    const auto failure = FailureOf([&] { FromDLPack(&tensor.managed); });
    FAKE(fake_fail)(0, 0);
    ReleaseOwners();
    EXPECT_EQ(tensor.deleted, failure.code ? 0 : 1) << "call " << k << ": " << failure.message;
    if (IsUsable(index)) {
      EXPECT_EQ(framework.Read(tensor.address), Counting());
    }
  });
  EXPECT_GT(calls, 10);
}

TEST_F(SharedMemory, IsAsItWasAfterACallThatFails) {
  const int calls = ForEachCall([](int k, int32_t index) {
    Framework framework(index);
    Tensor tensor(&framework);
    framework.Write(tensor.address, Counting());
    tensor.Has({8, 6}, {12, 1});
    const NDArray view = tensor.ImportForCall();
    FAKE(fake_fail)(k, test::kOperatingSystem);
    const auto failure = FailureOf([&] { BinaryInto(BinaryOp::kAdd, view, 1, view); });
    FAKE(fake_fail)(0, 0);
    if (!IsUsable(index)) return;
    const Values after = framework.Read(tensor.address);
    EXPECT_EQ(after[6], 7) << "between the rows";
    EXPECT_EQ(after[13], failure.code ? 14 : 15) << "call " << k << ": " << failure.message;
  });
  EXPECT_GT(calls, 20);
}

TEST_F(SharedMemory, OfManyTensorsIsItsOwnersAfterACallThatFails) {
  const int calls = ForEachCall([](int k, int32_t index) {
    Framework framework(index);
    Tensor tensor(&framework);
    framework.Write(tensor.address, Counting());
    bool is_taken = false;
    {
      DLPackLoans loans;
      FAKE(fake_fail)(k, test::kOperatingSystem);
      FailureOf([&] {
        loans.Follow(index, static_cast<uint64_t>(framework.stream()));
        const NDArray array = loans.Take(&tensor.managed);
        is_taken = true;
        loans.End();
      });
      FAKE(fake_fail)(0, 0);
    }
    if (IsUsable(index)) {
      EXPECT_EQ(framework.Read(tensor.address), Counting());
    }
    ReleaseOwners();
    EXPECT_EQ(tensor.deleted, is_taken ? 1 : 0) << "call " << k;
  });
  EXPECT_GT(calls, 10);
}

TEST_F(SharedMemory, IsNotExportedByACallThatFails) {
  const int calls = ForEachCall([](int k, int32_t index) {
    Framework consumer(index);
    const NDArray array = Floats(Counting()).WithContext(Context::Gpu(index));
    FAKE(fake_fail)(k, test::kOperatingSystem);
    DLManagedTensorVersioned* managed = nullptr;
    const auto failure = FailureOf([&] { managed = ToDLPackVersioned(array, consumer.stream()); });
    FAKE(fake_fail)(0, 0);
    EXPECT_EQ(array.storage()->foreign(), !failure.code) << "call " << k;
    if (managed == nullptr) return;
    EXPECT_EQ(consumer.Read(reinterpret_cast<cuda::Address>(array.data())), Counting());
    managed->deleter(managed);
  });
  EXPECT_GT(calls, 5);
}

TEST_F(SharedMemory, IsItsOwnersWhereMemoryEnds) {
  Framework framework(Sound());
  bool has_enough = false;
  for (int allocations = 0; !has_enough; ++allocations) {
    Tensor tensor(&framework);
    framework.Write(tensor.address, Counting());
    framework.LetWait(GpuStream(framework.index()));
    const auto attempt = WithMemoryFor(allocations, [&] { FromDLPack(&tensor.managed); });
    has_enough = !attempt.ran_out;
    WaitAll();
    EXPECT_EQ(tensor.deleted, attempt.succeeded ? 1 : 0) << "allocation " << allocations;
  }
}

TEST_F(SharedMemory, OfALostDeviceIsLetGo) {
  Framework framework(NextIndex());
  Tensor tensor(&framework);
  framework.Write(tensor.address, Counting());
  framework.Wait();
  FAKE(fake_stop)(1);
  {
    const NDArray array = tensor.ImportForCall();
    BinaryInto(BinaryOp::kAdd, array, 1, array);
  }
  EXPECT_EQ(tensor.deleted, 0);
  FAKE(fake_lose)(framework.index(), test::kIllegalAddress);
  EXPECT_FAILS(Code::kUnavailable, WaitAll());
  WaitAll();  // already reported
  ReleaseOwners();
  EXPECT_EQ(tensor.deleted, 1);
  FAKE(fake_stop)(0);
}

TEST_F(SharedMemory, WaitsForItsOwnerUntilTheInterrupt) {
  Framework framework(Sound());
  Tensor tensor(&framework);
  framework.Write(tensor.address, Counting());
  const NDArray array = tensor.Import();
  FAKE(fake_stop)(1);
  SetGpuInterrupt([] { throw Error(Code::kCancelled, "the user"); });
  EXPECT_FAILS(Code::kCancelled, BinaryInto(BinaryOp::kAdd, array, 1, array));
  SetGpuInterrupt({});
  FAKE(fake_stop)(0);
  EXPECT_EQ(framework.Read(tensor.address), Counting());
}

}  // namespace
}  // namespace tkv
