#include "tensor/device_loan.h"

#include "base/format.h"
#include "tensor/device_work.h"
#include "tensor/strided.h"

namespace tkv {
namespace {

// Of a copy of rows.
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

// A kernel that reads across elements would lose the device.
void CheckAlignment(const NDArray& array) {
  const size_t item = ItemSize(array.dtype());
  if (AddressOf(array) % item == 0) return;
  throw Fail(Code::kInvalidArgument,
             "array: memory on {} at {} bytes beyond a multiple of {}, the size of a {}",
             array.context().ToString(), AddressOf(array) % item, item, Name(array.dtype()));
}

}  // namespace

void BeginLoan(const NDArray& array) {
  const Storage& storage = *array.storage();
  Device& device = Device::Get(storage.memory().index);
  CheckStrides(array);
  CheckAlignment(array);
  device.CheckHolds(reinterpret_cast<cuda::Address>(storage.data()), storage.bytes());
  device.compute().CheckNotCaptured();
  const auto earlier = std::make_shared<Event>(&device);
  const AbandonUnlessRecorded abandon(earlier.get());
  array.storage()->AddWriter(earlier);
  earlier->Record(&device.compute());
}

}  // namespace tkv
