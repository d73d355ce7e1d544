// The limits of the machine: loops that move the fewest bytes with which a store's operation can be
// done.

#pragma once

#include <array>
#include <vector>

#include "measure.h"
#include "raw_link.h"
#include "tkv/ndarray.h"

namespace tkv::cli {

using Summands = std::array<NDArray, 4>;

// Return the runs of one operation by `threads` threads.  The first run uses memcpy, the other
// non-temporal stores where the processor has them.
//   shape  all of one shape, contiguous float32
std::vector<Figure::Run> Copies(const NDArray& source, const NDArray& target, int threads);
std::vector<Figure::Run> Sums(const Summands& sources, const NDArray& target, int threads);
// Returns a run that sends the array over the link and receives it back.
//   owns  borrows the link
std::vector<Figure::Run> Exchanges(const RawLink& link, const NDArray& source,
                                   const NDArray& target);

}  // namespace tkv::cli
