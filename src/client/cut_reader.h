// Saving and loading: reads of cut versions, restores, and the status of keys.

#pragma once

#include "client/client_core.h"

namespace tkv {

class CutReader {
 public:
  explicit CutReader(ClientCore* core) : core_(*core) {}

  // Starts at once: servers keep the cut version even if the key has changed or was deleted since.
  void StartRead(Op* op);
  void OnReadAnswer(const Outgoing& sent, const Message& reply);
  // Returns the range of the read's `out` that receives a chunk's part.
  static codec::Range RangeOf(const Operation::Read& read, uint32_t chunk);
  void StartRelease(Op* op);
  void StartRestore(const KeyId& id, ClientKey* key, Op* op);
  // Asks chunks for their status: all chunks for a Stats, one chunk for the base of the rounds.
  void StartStatus(const KeyId& id, ClientKey* key, Op* op);
  void OnStatusAnswer(Op* op, const Outgoing& sent, const Message& reply);

 private:
  void QueueRead(Op* op, uint32_t chunk, size_t bytes, const RowRange* rows);
  void QueueRestore(const KeyId& id, ClientKey* key, Op* op, uint32_t chunk);
  std::optional<Error> WhyNotRestored(const ClientKey& key,
                                      const Operation::Restore& operation) const;

  ClientCore& core_;
};

}  // namespace tkv
