#include "tensor/device_loan.h"

#include <deque>
#include <utility>

#include "base/format.h"
#include "tensor/device_work.h"
#include "tensor/strided.h"
#include "tkv/dlpack.h"

namespace tkv {
namespace {

// Limit of the driver for a copy of rows.
constexpr int64_t kPitchMaxBytes = INT32_MAX;

void CheckStrides(const NDArray& array) {
  if (array.contiguous()) return;
  const Strides strides = array.strides();
  const auto rows = RowsOf(array.shape(), strides.data());
  const auto item = static_cast<int64_t>(ItemSize(array.dtype()));
  if (rows && rows->pitch <= kPitchMaxBytes / item) return;
  throw Fail(
      Code::kUnimplemented,
      "array: strides ({}) of shape {} on {}, where elements lie in C order, or in such rows at "
      "one distance of less than 2 GiB; copy it first",
      Join(strides, ", "), array.shape().ToString(), array.context().ToString());
}

// A kernel that reads an unaligned element would make the device lost.
void CheckAlignment(const NDArray& array) {
  const size_t item = ItemSize(array.dtype());
  if (AddressOf(array) % item == 0) return;
  throw Fail(Code::kInvalidArgument,
             "array: memory on {} at {} bytes beyond a multiple of {}, the size of a {}",
             array.context().ToString(), AddressOf(array) % item, item, Name(array.dtype()));
}

// The DLPackLoans that collect the tensor which this thread wraps now; null: none.
thread_local DLPackLoans* taking = nullptr;

}  // namespace

class DLPackLoans::Devices final {
 public:
  struct One {
    explicit One(Device* which) : device(*which) {}
    void End();

    Device& device;
    std::deque<Stream> streams;
    Storages taken;
  };

  One& Of(int32_t gpu);
  void Enter(const NDArray& array);

  std::deque<One> all;
};

DLPackLoans* LoansOfThread() noexcept { return std::exchange(taking, nullptr); }

void BeginLoan(const NDArray& array, DLPackLoans* loans) {
  const Storage& storage = *array.storage();
  Device& device = Device::Get(storage.memory().index);
  CheckStrides(array);
  CheckAlignment(array);
  if (loans != nullptr) return loans->devices().Enter(array);
  device.CheckHolds(reinterpret_cast<cuda::Address>(storage.data()), storage.bytes());
  device.compute().CheckNotCaptured();
  const auto earlier = std::make_shared<Event>(&device);
  const AbandonUnlessRecorded abandon(earlier.get());
  array.storage()->AddWriter(earlier);
  earlier->Record(&device.compute());
}

void DLPackLoans::Devices::Enter(const NDArray& array) {
  Of(array.context().index).taken.push_back(array.storage());
}

DLPackLoans::Devices::One& DLPackLoans::Devices::Of(int32_t gpu) {
  for (One& one : all) {
    if (one.device.index() == gpu) return one;
  }
  Device& device = Device::Get(gpu);
  device.compute().CheckNotCaptured();
  return all.emplace_back(&device);
}

DLPackLoans::DLPackLoans() = default;

DLPackLoans::~DLPackLoans() = default;

DLPackLoans::Devices& DLPackLoans::devices() {
  if (devices_ == nullptr) devices_ = std::make_unique<Devices>();
  return *devices_;
}

void DLPackLoans::Follow(int32_t gpu, uint64_t stream) {
  if (static_cast<int64_t>(stream) == kNoStream) return;
  Devices::One& one = devices().Of(gpu);
  for (const Stream& known : one.streams) {
    if (reinterpret_cast<uint64_t>(known.handle()) == stream) return;
  }
  one.streams.emplace_back(&one.device, stream);
  try {
    one.streams.back().CheckNotCaptured();
  } catch (...) {
    one.streams.pop_back();
    throw;
  }
}

NDArray DLPackLoans::Take(DLManagedTensorVersioned* managed) {
  struct Taking {
    explicit Taking(DLPackLoans* loans) { taking = loans; }
    ~Taking() { taking = nullptr; }
  };
  const Taking scope(this);
  return FromDLPack(managed);
}

// Makes the device's stream wait until the owners have computed the tensors.  Later users of the
// tensors wait for the event `earlier`.
void DLPackLoans::Devices::One::End() {
  if (taken.empty()) return;
  Stream& compute = device.compute();
  for (Stream& theirs : streams) {
    Event ready(&device);
    const AbandonUnlessRecorded abandon(&ready);
    ready.Record(&theirs);
    device.CheckUsable();
    if (ready.Order(&compute)) continue;
    device.CheckUsable();
    throw Fail(Code::kInternal, "gpu({}): a stream cannot wait for that of a tensor's owner",
               device.index());
  }
  const auto earlier = std::make_shared<Event>(&device);
  const AbandonUnlessRecorded abandon(earlier.get());
  Storage::Enters(earlier);
  for (const auto& storage : taken) storage->Enter(earlier, Access::kWrite);
  earlier->Record(&compute);
}

void DLPackLoans::End() {
  if (devices_ == nullptr) return;
  for (Devices::One& one : devices_->all) one.End();
  devices_.reset();
}

}  // namespace tkv
