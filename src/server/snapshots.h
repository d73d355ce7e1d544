// Reads of cuts, which are versions of chunks kept for reading, and restored values: PULL with
// kOfCut, RELEASE, RESTORE.
//
// Uses Replies and Controls.

#pragma once

#include "server/controls.h"

namespace tkv {

class Snapshots {
 public:
  // Makes the access to the cuts of a shard, from the shard's other parts.
  Snapshots(ShardCore* core, Replies* replies, Controls* controls)
      : core_(*core), replies_(*replies), controls_(*controls) {}

  // Returns true if the body of a RESTORE deserves memory.
  bool Admits(const Session& session, const Message& message) const;
  // Sends a part of a cut, which a PULL with kOfCut names.
  void OnRead(Session* session, const Message& message, Effects* effects);
  void OnRelease(Session* session, const Message& message, Effects* effects);
  // Restores a chunk.  Fails while a round is open, because its pushes were computed from the
  // values that the RESTORE replaces.
  void OnRestore(Session* session, Message& message, Effects* effects);

 private:
  // Sends a range of the rows of a cut by rows.
  void OnReadRows(Session* session, const Message& message, const ChunkCut& cut, Effects* effects);
  // Sends the values of the rows whose ids the message has.
  void OnReadSomeRows(Session* session, const Message& message, const ChunkCut& cut,
                      Effects* effects);

  ShardCore& core_;
  Replies& replies_;
  Controls& controls_;
};

}  // namespace tkv
