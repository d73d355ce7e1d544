// Snapshots of the store of one process.

#pragma once

#include <string>

#include "store/claim.h"
#include "store/snapshots.h"

namespace tkv {

// Writes the keys, claimed to read, and returns the folder or file.
//   throws  as WriteSnapshot; kFailedPrecondition  there are no states to save
std::string SaveKeys(const Claim& claim, const std::string& path, Parts parts,
                     const StoreOptions& options);

// Puts what the snapshot has of the keys, claimed to write, in the place of what they are.
//   throws  what MatchKeys and the reader throw; then nothing has changed
void LoadKeys(const checkpoint::Reader& reader, Parts parts, Claim* claim);

}  // namespace tkv
