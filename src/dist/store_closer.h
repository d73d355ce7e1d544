// The end of a store: its last save, its calls under way, its keys on the servers, and the leave of
// the worker that has no other store.

#pragma once

#include <optional>

#include "dist/saver.h"
#include "dist/store_core.h"

namespace tkv {

class StoreCloser {
 public:
  // Makes the closer of a store.  Both arguments must outlive it.
  StoreCloser(StoreCore* core, Saver* saver) : core_(*core), saver_(*saver) {}

  // Closes the store as KVStore::Close.  Does nothing for a store that is closed already.
  //   failure  why the worker's program ends; the other workers receive it
  //   blocks   for the servers, for each step at most the patience
  //   throws   the first error; the store is closed nevertheless
  void Close(const std::optional<Error>& failure);
  // Does the work of Close for a store that is dropped without it, for about two seconds at most.
  // The store's save is finished, and its pushes are accepted.  If this was the last store, the
  // worker leaves the job.  Otherwise the servers free the store's keys, unless the program has
  // failed.  No code of the user runs.
  void Drop(const std::optional<Error>& failure) noexcept;

 private:
  void Leave(const std::optional<Error>& failure);
  void FreeKeys();
  void WarnOfDrop(const char* what, const char* why) const noexcept;

  StoreCore& core_;
  Saver& saver_;
};

}  // namespace tkv
