// The entries of the index of a snapshot: JSON objects, one for each key and each program.

#pragma once

#include <vector>

#include "checkpoint/json.h"
#include "checkpoint/saved_key.h"

namespace tkv::checkpoint {

// Returns the entry of a key, without its parts.
//   programs  gets the key's programs that it has not; the entry has their positions
json::object EntryOf(const SavedKey& key, std::vector<SavedProgram>* programs);
// Returns the key with this entry.
//   throws  kDataLoss  no key has such an entry
SavedKey KeyOf(const json::object& entry, const std::vector<SavedProgram>& programs);

json::object EntryOf(const SavedProgram& program);
//   throws  kDataLoss  no program has such an entry
SavedProgram ProgramOf(const json::object& entry);

}  // namespace tkv::checkpoint
