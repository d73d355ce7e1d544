#include "tensor/device_copy.h"

#include "tensor/device_work.h"
#include "tensor/strided.h"

namespace tkv {
namespace {

void CopyWithin(const NDArray& source, const NDArray& target) {
  Device& device = DeviceOf(target);
  DeviceWork work(&device.compute(), {&source, 1}, {&target, 1});
  device.Do("copy", device.driver().CopyWithin, AddressOf(target), AddressOf(source),
            target.bytes(), device.compute().handle());
  work.Given();
}

void CopyToPeer(const NDArray& source, const NDArray& target) {
  Device& from = DeviceOf(source);
  Device& device = DeviceOf(target);
  DeviceWork work(&device.compute(), {&source, 1}, {&target, 1});
  from.CheckUsable();  // a lost device did not order anything after its work
  device.Do("copy from another device", device.driver().CopyToPeer, AddressOf(target),
            device.context(), AddressOf(source), from.context(), target.bytes(),
            device.compute().handle());
  work.Given();
}

// Returns the address behind the last element, with the holes between rows.
cuda::Address EndOf(const NDArray& array) {
  if (array.contiguous()) return AddressOf(array) + array.bytes();
  const StridedExtent extent = ExtentOf(array.shape(), array.strides().data());
  return AddressOf(array) + static_cast<size_t>(extent.high) * ItemSize(array.dtype());
}

bool Overlap(const NDArray& a, const NDArray& b) {
  return AddressOf(a) < EndOf(b) && AddressOf(b) < EndOf(a);
}

// Returns where an array begins and how far apart its rows of `width_bytes` are.
cuda::RowPlace PlaceOf(const NDArray& array, size_t width_bytes) {
  cuda::RowPlace place;
  place.address = AddressOf(array);
  place.pitch_bytes = width_bytes;
  if (array.contiguous()) return place;
  const auto rows = RowsOf(array.shape(), array.strides().data());
  place.pitch_bytes = static_cast<size_t>(rows->pitch) * ItemSize(array.dtype());
  return place;
}

// Copies between arrays on one device.
void CopyOnDevice(const NDArray& source, const NDArray& target) {
  const bool are_dense = source.contiguous() && target.contiguous();
  if (are_dense && AddressOf(source) == AddressOf(target)) return;
  const NDArray apart = Overlap(source, target) ? source.Copy() : source;
  if (apart.contiguous() && target.contiguous()) return CopyWithin(apart, target);
  Stream& stream = DeviceOf(target).compute();
  DeviceWork work(&stream, {&apart, 1}, {&target, 1});
  GiveRowCopy(&stream, apart, target);
  work.Given();
}

bool AreOnOneDevice(const NDArray& a, const NDArray& b) {
  return a.storage()->memory() == b.storage()->memory();
}

// Returns true if `array` has to be copied to contiguous memory first.  This is so if it is on a
// device and has holes, unless `other` is contiguous and on the same device.
bool NeedsPacking(const NDArray& array, const NDArray& other) {
  return IsOfDevice(array) && !array.contiguous() &&
         !(AreOnOneDevice(array, other) && other.contiguous());
}

}  // namespace

// Foreign memory may be of a kind that peers cannot access, even if their devices can.
bool IsReachedBy(Device* device, const NDArray& array) {
  if (!IsOfDevice(array) || !array.contiguous()) return false;
  const int32_t index = array.storage()->memory().index;
  if (index == device->index()) return true;
  return array.storage()->is_own() && device->Reaches(&Device::Get(index));
}

NDArray ReachedBy(Device* device, const NDArray& array) {
  if (IsReachedBy(device, array)) return array;
  return array.WithContext(Context::Gpu(device->index())).Packed();
}

void GiveRowCopy(Stream* stream, const NDArray& source, const NDArray& target) {
  const NDArray& pitched = source.contiguous() ? target : source;
  const auto rows = RowsOf(pitched.shape(), pitched.strides().data());
  cuda::RowCopy copy;
  copy.width_bytes = static_cast<size_t>(rows->length) * ItemSize(target.dtype());
  copy.height = static_cast<size_t>(rows->count);
  copy.source = PlaceOf(source, copy.width_bytes);
  copy.target = PlaceOf(target, copy.width_bytes);
  Device& device = stream->device();
  device.Do("copy rows", device.driver().CopyRows, static_cast<const cuda::RowCopy*>(&copy),
            stream->handle());
}

void CopyToDevice(const void* source, const NDArray& target) {
  Device& device = DeviceOf(target);
  DeviceWork work(&device.to_device(), {}, {&target, 1});
  device.staging_to_device().CopyToDevice(source, AddressOf(target), target.bytes(),
                                          &device.to_device(), work.done());
  work.Recorded();
}

// Copies between arrays in C order.
static void CopyToHost(const NDArray& source, const NDArray& target) {
  Device& device = DeviceOf(source);
  device.CheckUsable();
  if (source.size() == 0) return;
  source.storage()->WaitReadable();  // a wait that the user can interrupt
  const DeviceWork work(&device.to_host(), {&source, 1}, {});
  device.staging_to_host().CopyToHost(AddressOf(source), target.HostData(), source.bytes(),
                                      &device.to_host(), work.done());
}

NDArray CopyOnHost(const NDArray& source, Context context) {
  if (!source.contiguous()) return CopyOnHost(source.Copy(), context);
  const NDArray copy = NDArray::Empty(source.shape(), source.dtype(), context);
  CopyToHost(source, copy);
  return copy;
}

void CopyByDevice(const NDArray& source, const NDArray& target) {
  if (target.size() == 0) return;
  if (NeedsPacking(source, target)) return CopyByDevice(source.Copy(), target);
  if (NeedsPacking(target, source)) {
    const NDArray packed = NDArray::Empty(target.shape(), target.dtype(), target.context());
    packed.CopyFrom(source);
    return CopyByDevice(packed, target);
  }
  if (!IsOfDevice(source)) {
    const NDArray packed = source.Packed();
    packed.storage()->WaitReadable();
    return CopyToDevice(packed.HostData(), target);
  }
  if (!IsOfDevice(target)) {
    target.storage()->WaitWritable();
    if (source.contiguous() && target.contiguous()) return CopyToHost(source, target);
    return CopyElements(CopyOnHost(source, target.context()), target);
  }
  if (!AreOnOneDevice(source, target)) return CopyToPeer(source, target);
  CopyOnDevice(source, target);
}

void ZeroOnDevice(const NDArray& target) {
  if (target.size() == 0) return;
  Device& device = DeviceOf(target);
  DeviceWork work(&device.compute(), {}, {&target, 1});
  device.Do("fill", device.driver().Set8, AddressOf(target), static_cast<unsigned char>(0),
            target.bytes(), device.compute().handle());
  work.Given();
}

}  // namespace tkv
