// A folder of snapshots: their names, 000001 and so on, and the removal of old ones.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/index.h"

namespace tkv::checkpoint {

// Returns the path of a snapshot's index.
std::string IndexIn(const std::string& snapshot);
// Returns the name of one of a snapshot's files.
std::string FileName(size_t file, size_t count);
// Reads the index of a snapshot.
//   throws  as File does; kDataLoss, kFailedPrecondition  as IndexOf, or it is longer than an index
//           may be
Index ReadIndex(const std::string& snapshot);

// Returns the paths of the snapshots in a folder, the newest first; also of those that this user
// may not open, so that no older one is taken in their place.
std::vector<std::string> SnapshotsIn(const std::string& folder);
// Returns the path of the newest snapshot in a folder, if there is one.
std::optional<std::string> NewestIn(const std::string& folder);
// Returns a name for the next snapshot.
std::string NewNameIn(const std::string& folder);
// Returns the temporary name under which a snapshot is built, and to which an old one is renamed
// before it is removed.
std::string NameMeanwhile(const std::string& name);
// Returns true for a temporary name.  An interrupted save or removal has left such a folder.
bool IsLeftOver(std::string_view name);
// Removes old snapshots of a folder: of the snapshots with keys of the same stores, all but the
// newest ones.  A folder whose index is damaged or not TensorKV's is neither counted nor removed.
void Prune(const std::string& folder, size_t kept);

}  // namespace tkv::checkpoint
