// Rounds and stores the scalars of an update, for binding.cc and tile_driver.cc.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "update/tile_driver.h"

namespace tkv {

// Rounds the scalars that the code applies to arrays to its compute type.
//   throws  kInvalidArgument (an integer type cannot hold one of them)
std::vector<std::byte> RoundFor(const TileCode& code, std::span<const double> values);

// Sets the scalars of the code that stores, and the scalar states after the update, from all scalar
// values.
//   throws  as RoundFor
void TakeScalars(const CompiledUpdate& update, std::span<const double> values,
                 UpdateScalars* scalars);

}  // namespace tkv
