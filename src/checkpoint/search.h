// Finds the snapshot that a path names: in a folder of snapshots the newest, or that of a store.

#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "checkpoint/reader.h"

namespace tkv::checkpoint {

// Opens the newest snapshot of a folder, a snapshot, or a file of states.  If the path does not
// exist and ends in "/store-N", opens the path before that as FindStore does for store N.
//   throws  as Reader; kNotFound (also: no keys of store N), kInvalidArgument (no path)
Reader Open(const std::string& path);
// Opens the keys of a store.  In a folder of snapshots, opens the newest one with keys of the
// store, or without any keys.
//   returns  none if the keys there are all of other stores
//   throws   as Open; also if a newer snapshot of the folder cannot be read
std::optional<Reader> FindStore(const std::string& path, uint32_t store);
// Opens the keys of a store, as FindStore does.  If all keys there are of one other store, opens
// the newest of those.
//   throws  as FindStore; kInvalidArgument  the keys are of several other stores
Reader OpenStore(const std::string& path, uint32_t store);
// Returns the numbers of the stores that have keys at `path`, in any snapshot of a folder.
//   unread  takes the error of each older snapshot whose index is damaged, of a newer format or
//           closed to this user; its stores are then not returned
//   throws  as Open
std::set<uint32_t> StoresAt(const std::string& path,
                            const std::function<void(const Error&)>& unread);

}  // namespace tkv::checkpoint
