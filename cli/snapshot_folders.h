// The folders from which a launched job resumes and into which it saves.

#pragma once

#include <string>

#include "launch.h"

namespace tkv::cli {

// Returns true if a job can go on from the folder that an option names.
//   throws  as KVStore::HasSnapshot; the text names the option
bool HasSnapshot(const LaunchOptions& options, const std::string& name, const std::string& path);

// Makes the folders' paths absolute, in the options and in the environment of the job: also that of
// TKV_ROWS_DIR.  Chooses the folder for snapshots: the one from which the job resumes, unless
// another is named.
//   throws  kInvalidArgument     the job saves, and no folder is named; a folder with which it would
//                                not resume as requested; the path of one store of a snapshot
//           kNotFound            nothing to resume from in a job that does not save; a link to nothing
//           kFailedPrecondition  a folder that cannot be reached
//           as HasSnapshot
void PrepareSnapshotFolders(LaunchOptions* options);

}  // namespace tkv::cli
