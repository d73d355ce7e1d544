// The values that simulated workers init and push: whole numbers from which the model can tell which
// pushes a value has.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "codec/codec.h"
#include "simulation/scenario.h"

namespace tkv::simulation {

// The value that an incarnation pushes as its n-th push of a key.  Element i is lane i % 8.  A
// sparse key has twelve lanes: every element of the row with id i is lane i.  Lanes are whole
// numbers that are exact in the key's dtype, even as a sum over workers.
inline constexpr size_t kLanes = 8;
using Lanes = std::array<int64_t, kRowIds>;  // dense keys use the first kLanes
using RowSet = uint16_t;                     // bit i: the row with id i
inline constexpr RowSet kAllRows = (1U << kRowIds) - 1;
Lanes Contribution(uint64_t seed, const SimKey& key, Rank rank, uint64_t incarnation,
                   uint64_t round);
Lanes InitialValue(uint64_t seed, const SimKey& key);
// Returns which rows below kRowIds an INIT has.
RowSet InitialRows(uint64_t seed, const SimKey& key);
codec::Contribution Initial(uint64_t seed, const SimKey& key);
// Returns which rows a push has; all of them for a dense key.
RowSet Touched(uint64_t seed, const SimKey& key, Rank rank, uint64_t incarnation, uint64_t round);
// Returns those of these rows that belong to a bucket, in the order in which they are sent.
std::vector<uint64_t> RowsOf(const SimKey& key, uint32_t chunk, RowSet rows);
// Returns the request of a pull of these rows, and the number of bytes that it receives.
codec::Contribution AskFor(const SimKey& key, RowSet rows);
size_t PulledBytes(const SimKey& key, RowSet rows);
size_t PulledBytes(const SimKey& key, uint32_t chunk, RowSet rows);
// Returns a push as it is sent, in an encoding that represents its lanes exactly.
codec::Contribution Encoded(uint64_t seed, const SimKey& key, Rank rank, uint64_t incarnation,
                            uint64_t round);

// Converts whole numbers to elements of a dtype, and back.
void Store(DType dtype, int64_t value, std::byte* target);
int64_t Load(DType dtype, const std::byte* source);
// Returns a whole number after conversion to the dtype and back.
int64_t Wrap(DType dtype, int64_t value);

}  // namespace tkv::simulation
