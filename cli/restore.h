// The subcommand restorer: the first life of a worker of a job that goes on from a snapshot.
//
// All ranks make the keys of the snapshot, load it, and say so; they stay until the worker itself
// begins the next life of the rank.  For that one keys are there, and `round` says where it goes on.

#pragma once

#include <string>

namespace tkv::cli {

inline constexpr const char* kRestored = "restored\n";  // what it says then, and nothing else
inline constexpr int kRestorerIsLost = 75;              // EX_TEMPFAIL

// Makes every store of the snapshot, with the number that it had.
//   returns  kRestorerIsLost  a process of the job has ended, or does not answer: another try may end
//                             otherwise
//   throws   as KVStore::Create and KVStore::Restore
int RunRestorer(const std::string& path);

}  // namespace tkv::cli
