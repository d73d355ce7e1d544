// Creates the keys of a store on the servers.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dist/row_encoder.h"
#include "dist/saver.h"
#include "dist/server_updater.h"
#include "dist/store_core.h"
#include "dist/transfer_builder.h"

namespace tkv {

class KeyCreator {
 public:
  // The parts of the store that a creator uses.  All must outlive it.
  struct Parts {
    StoreCore* core;
    ServerUpdater* updater;
    RowEncoder* rows;
    TransferBuilder* builder;
    Saver* saver;
  };
  //   mode  the mode of keys for which the user names none
  KeyCreator(KeyMeta::Mode mode, const Parts& parts)
      : mode_(mode),
        core_(*parts.core),
        updater_(*parts.updater),
        rows_(*parts.rows),
        builder_(*parts.builder),
        saver_(*parts.saver) {}

  // Create keys with values, or tables, and wait for them.  If one fails, the keys that were made
  // before stay.
  //   verb    the first word of errors
  //   blocks  for rank 0 to create them, at most the patience
  //   throws  kAlreadyExists, kInvalidArgument, kResourceExhausted, and errors of the servers
  void Init(std::string_view verb, std::span<const InitItem> items);
  void InitRows(std::string_view verb, std::span<const RowsInitItem> items);

 private:
  using NewRecordPtr = std::shared_ptr<KeyRecord>;
  NewRecordPtr NewRecord(std::string_view verb, const KeyView& key, KVStore::KeyInfo info,
                         std::string_view mode) const;
  KeyMeta MetaOf(const KeyRecord& record) const;
  Layout NewLayout() const;
  NewRecordPtr NewValue(std::string_view verb, const InitItem& item, Layout layout) const;
  NewRecordPtr NewTable(std::string_view verb, const RowsInitItem& item);
  Operation InitOf(std::string_view verb, const KeyRecord& record, const NDArray& value);
  Operation InitRowsOf(std::string_view verb, const NewRecordPtr& record, const Rows* rows);
  void LaunchInits(const std::string& verb, std::vector<Operation> inits,
                   const std::vector<NewRecordPtr>& records);
  void ContinueRounds(const KeyRecord& record);

  const KeyMeta::Mode mode_;
  StoreCore& core_;
  ServerUpdater& updater_;
  RowEncoder& rows_;
  TransferBuilder& builder_;
  Saver& saver_;
};

}  // namespace tkv
