// The subcommand restorer: the first incarnation of each worker when a job resumes from a snapshot.
//
// The restorers of all ranks create the snapshot's keys, load the snapshot and report it.  Each
// then waits until the worker itself starts the next incarnation of the rank.  The worker finds the
// keys there, and `round` tells it where to continue.

#pragma once

#include <string>
#include <vector>

namespace tkv::cli {

// The restorer's only output, after it has loaded the snapshot.
inline constexpr const char* kRestored = "restored\n";
// The file that makes a folder a snapshot.
inline constexpr const char* kIndexName = "model.safetensors.index.json";
inline constexpr int kRestorerIsLost = 75;       // EX_TEMPFAIL
inline constexpr int kRestorerFindsDamage = 65;  // EX_DATAERR

// Returns the names of the snapshots in a folder, the oldest first; none if it cannot be read.  Looks
// at names alone, and not at what the snapshots have.
std::vector<std::string> SnapshotsIn(const std::string& folder);

// Returns which options go on from an older snapshot if the newest one of a folder, or one snapshot,
// is damaged: "; `--restore F/000001` goes on from the snapshot before it".  Returns "" if no older
// one has all stores of the folder.
//   snapshots  the folder to which the job saves; empty: it saves none by itself
std::string AdviceOnDamage(const std::string& path, const std::string& snapshots);

// Restores every store of the snapshot under its former number.
//   returns  kRestorerIsLost  a process of the job has ended or does not answer; another try may
//            succeed
//   returns  kRestorerFindsDamage  the snapshot is damaged
//   throws   as KVStore::Create and KVStore::Restore
int RunRestorer(const std::string& path);

}  // namespace tkv::cli
