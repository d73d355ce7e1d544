// Replaces the values of keys between two barriers: by those of a snapshot, or by those that a worker
// gives.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dist/barriers.h"
#include "dist/saver.h"
#include "dist/server_updater.h"
#include "dist/store_core.h"
#include "dist/transfer_builder.h"
#include "store/snapshots.h"

namespace tkv {

class Loader {
 public:
  // Makes the loader of a store.  All arguments must outlive it.
  Loader(StoreCore* core, const ServerUpdater* updater, TransferBuilder* builder, Saver* saver,
         Barriers* barriers)
      : core_(*core),
        updater_(*updater),
        builder_(*builder),
        saver_(*saver),
        barriers_(*barriers) {}

  // Load and Restore as KVStore::Load and RestoresSnapshots::Run; Assign as KVStore::Assign.  All
  // workers call them, and one does the work.  No worker has then begun a round on the old values,
  // and none reads before all values are replaced.
  //   verb    the first word of errors
  //   blocks  for every worker, each time at most the patience
  //   throws  the error of any worker; it says if some keys may have been replaced
  KVStore::SnapshotInfo Load(const std::string& verb, const std::string& path, Parts parts);
  KVStore::SnapshotInfo Restore(const RestoreSteps& steps);
  void Assign(const std::string& verb, std::span<const InitItem> items);

 private:
  struct Loading;
  class Restores;
  void CheckHasPushed(const std::string& task);
  void CheckEven(const std::string& verb, std::span<const RecordPtr> records);
  void OpenFor(const std::string& verb, const std::string& path, Parts parts, Loading* loading);
  void PutBack(const std::string& verb, Parts parts, const Loading& loading);
  void PutBackKey(size_t number, Parts parts, const Loading& loading, Restores* restores);
  void SendValues(const std::string& verb, std::span<const InitItem> items,
                  const std::vector<RecordPtr>& records);

  StoreCore& core_;
  const ServerUpdater& updater_;
  TransferBuilder& builder_;
  Saver& saver_;
  Barriers& barriers_;
  // The snapshot that a restore has verified, and its path as the user gave it.  The mutex of the
  // store's keys guards it.
  std::optional<std::pair<std::string, checkpoint::Reader>> verified_;
};

}  // namespace tkv
