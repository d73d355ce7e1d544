// The ids of rows that a PULL asks for, of a key or of a cut.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/rows.h"
#include "wire/message.h"

namespace tkv {

// Returns the mixes of the ids in the body of a PULL.
//   row_bytes  of the values of one row
//   throws     kInvalidArgument (not a whole number of ids, not ascending, of another bucket);
//              kOutOfRange (an id); kResourceExhausted (too many rows for one answer, or no memory)
std::vector<uint64_t> AskedMixes(const Message& pull, const codec::Bucket& bucket,
                                 size_t row_bytes);

}  // namespace tkv
