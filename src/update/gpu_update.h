// Updates arrays that a caller holds on a device.

#pragma once

#include <span>

#include "tkv/ndarray.h"
#include "update/tile_driver.h"

namespace tkv {

// Copies a result of an update that has already begun.  If the copy fails and the target is on a
// device, the device is lost, so that no reader sees half an update.
//   throws  as NDArray::CopyFrom
void CopyTheRest(const NDArray& source, const NDArray& target);

// Does as ApplyUpdate, which has checked the arrays.  All arrays except scalar states are on one
// device, and a kernel can run the program.
//   params  hyperparameters of the key
void UpdateOnDevice(const CompiledUpdate& update, std::span<const double> params, double round,
                    const NDArray& grad, const NDArray& value, std::span<const NDArray> states,
                    const NDArray& master);

}  // namespace tkv
