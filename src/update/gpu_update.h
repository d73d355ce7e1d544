// One update of arrays that a caller holds on a device.

#pragma once

#include <span>

#include "tkv/ndarray.h"
#include "update/tile_driver.h"

namespace tkv {

// What an update that has begun still changes: where it cannot, its device is lost, so that nobody reads half
// an update.
//   throws  as NDArray::CopyFrom
void CopyTheRest(const NDArray& source, const NDArray& target);

// As ApplyUpdate, which has looked at the arrays.  All but the scalar states are on one device; the
// program has a kernel.
//   params  of the key
void UpdateOnDevice(const CompiledUpdate& update, std::span<const double> params, double round,
                    const NDArray& grad, const NDArray& value, std::span<const NDArray> states,
                    const NDArray& master);

}  // namespace tkv
