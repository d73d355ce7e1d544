// A key as the store of one worker knows it.

#pragma once

#include <memory>
#include <string>

#include "codec/compress.h"
#include "store/types.h"
#include "tkv/kvstore.h"
#include "update/cache.h"
#include "wire/message.h"

namespace tkv {

struct KeyRecord {
  Key key;
  std::string name;  // canonical
  KVStore::KeyInfo info;
  KeyMeta::Mode mode = KeyMeta::Mode::kSync;
  // The bytes of the value; for a table, of one row.
  size_t value_bytes = 0;
  // Guarded by the store's mutex, as is `pushes`.
  mutable UserBytes bytes = {};
  // The number of the optimizer whose hyperparameters this worker has sent with a push; 0: none.
  // Atomic.
  mutable uint64_t params_sent_for = 0;
  mutable uint64_t pushes = 0;
  // The rounds of earlier incarnations of this worker.
  mutable uint64_t former_rounds = 0;
  // The last step of earlier incarnations, or of the loaded snapshot.  Guarded by the store's
  // mutex.
  mutable PushStep former_step = {};
  // The step number of the last push, by this or an earlier incarnation, or of the loaded snapshot.
  // 0: none.  Atomic.
  mutable uint32_t last_step = 0;
  uint64_t rounds() const { return former_rounds + pushes; }
  mutable std::shared_ptr<codec::Residual> residual = {};  // after its first compressed push
  mutable std::shared_ptr<const KeyMeta> meta = {};        // the definition that the servers have
  // For an observer, the round of the last pull.  Atomic.
  mutable uint64_t pulled = 0;
  // The optimizer of this key alone; null: that of the store.
  std::shared_ptr<const Optimizer> own = {};
  mutable CompiledUpdates own_code = {};
};

using RecordPtr = std::shared_ptr<const KeyRecord>;

}  // namespace tkv
