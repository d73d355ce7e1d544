#include "tensor/device_copy.h"

#include "tensor/device_work.h"
#include "tensor/strided.h"

namespace tkv {
namespace {

Device& DeviceOf(const NDArray& array) { return Device::Get(array.storage()->memory().index); }

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
  from.CheckUsable();  // nothing was ordered after the work of a device that is lost
  device.Do("copy from another device", device.driver().CopyToPeer, AddressOf(target),
            device.context(), AddressOf(source), from.context(), target.bytes(),
            device.compute().handle());
  work.Given();
}

bool Overlap(const NDArray& a, const NDArray& b) {
  return AddressOf(a) < AddressOf(b) + b.bytes() && AddressOf(b) < AddressOf(a) + a.bytes();
}

}  // namespace

void CopyToDevice(const void* source, const NDArray& target) {
  Device& device = DeviceOf(target);
  const DeviceWork work(&device.to_device(), {}, {&target, 1});
  device.staging_to_device().CopyToDevice(source, AddressOf(target), target.bytes(),
                                          &device.to_device(), work.done());
}

NDArray CopyOnHost(const NDArray& source, Context context) {
  const NDArray copy = NDArray::Empty(source.shape(), source.dtype(), context);
  Device& device = DeviceOf(source);
  device.CheckUsable();
  if (source.size() == 0) return copy;
  const DeviceWork work(&device.to_host(), {&source, 1}, {});
  device.staging_to_host().CopyToHost(AddressOf(source), copy.HostData(), source.bytes(),
                                      &device.to_host(), work.done());
  return copy;
}

void CopyByDevice(const NDArray& source, const NDArray& target) {
  if (target.size() == 0) return;
  if (!IsOfDevice(source)) {
    const NDArray packed = source.Packed();
    packed.storage()->WaitReadable();
    return CopyToDevice(packed.HostData(), target);
  }
  if (!IsOfDevice(target)) {  // as a whole, or not at all
    target.storage()->WaitWritable();
    return CopyElements(CopyOnHost(source, target.context()), target);
  }
  if (source.storage()->memory() != target.storage()->memory()) return CopyToPeer(source, target);
  if (AddressOf(source) == AddressOf(target)) return;
  CopyWithin(Overlap(source, target) ? source.Copy() : source, target);
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
