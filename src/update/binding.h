// What binding and the tile driver share of the scalars of an update.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "update/tile_driver.h"

namespace tkv {

// The scalars that the code gives to arrays, rounded for their type.
//   throws  kInvalidArgument  an integer type cannot hold one of them
std::vector<std::byte> RoundFor(const TileCode& code, std::span<const double> values);

// What the code that stores, and the states, take from the scalars.
//   throws  as RoundFor
void TakeScalars(const CompiledUpdate& update, std::span<const double> values,
                 UpdateScalars* scalars);

}  // namespace tkv
