// Snapshots of the store of one process.

#pragma once

#include <string>

#include "store/claim.h"
#include "store/snapshots.h"

namespace tkv {

// Writes a snapshot of the keys, which are claimed to read.  Returns the folder or file.
//   throws  as WriteSnapshot; kFailedPrecondition  there are no states to save
std::string SaveKeys(const Claim& claim, const std::string& path, Parts parts);

// Replaces the keys' content by that of the snapshot.  The keys are claimed to write.
//   throws  the errors of MatchKeys and of the reader; then nothing has changed
void LoadKeys(const checkpoint::Reader& reader, Parts parts, Claim* claim);

}  // namespace tkv
