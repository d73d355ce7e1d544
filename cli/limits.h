// What the machine allows: loops that move the fewest bytes of what a store does.

#pragma once

#include <array>
#include <vector>

#include "measure.h"
#include "raw_link.h"
#include "tkv/ndarray.h"

namespace tkv::cli {

using Summands = std::array<NDArray, 4>;

// Each by so many threads, and in the ways there are: with memcpy, and with stores past the caches where
// the processor has them.
//   shape  all of one shape, contiguous float32
std::vector<Figure::Run> Copies(const NDArray& source, const NDArray& target, int threads);
std::vector<Figure::Run> Sums(const Summands& sources, const NDArray& target, int threads);
// The array there and back.
//   owns  borrows the link
std::vector<Figure::Run> Exchanges(const RawLink& link, const NDArray& source,
                                   const NDArray& target);

}  // namespace tkv::cli
