// Makes the servers keep the present version of each key, which a save then reads.

#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dist/saving.h"
#include "dist/server_updater.h"
#include "dist/store_core.h"
#include "dist/store_saves.h"

namespace tkv {

// A save that is asked for.
struct SaveRequest {
  std::string verb;  // the first word of errors
  std::string path;
  Parts parts = Parts::kAll;
  std::vector<SavedStore> stores;
  std::chrono::nanoseconds patience;  // with which servers are asked
};

// Returns true if pushes of other workers change values without a push of this one.
bool HasAsyncKeys(std::span<const SavedStore> stores);

class KeyCutter {
 public:
  // Makes the cutter of an open store.  Both arguments must outlive it.
  KeyCutter(StoreCore* core, const ServerUpdater* updater) : core_(*core), updater_(*updater) {}

  // Makes the servers keep a version of every key of the request at its present round.
  //   returns  the save that reads these versions; null if another rank saves
  //   throws   errors of the servers; they then keep nothing.  Their error for a save or export of
  //            another worker ends with kIsSaving.
  std::shared_ptr<Saving> Cut(const SaveRequest& request);

 private:
  using Outcomes = std::map<RecordPtr, Outcome>;
  void CutKeys(const SaveRequest& request, std::span<const RecordPtr> records, Outcomes* outcomes);
  Outcomes CutStores(const SaveRequest& request);
  SavedKey DescribeCut(const SaveRequest& request, const KeyRecord& record, const Outcome& outcome);

  StoreCore& core_;
  const ServerUpdater& updater_;
};

}  // namespace tkv
