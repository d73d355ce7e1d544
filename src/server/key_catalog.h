// The keys that exist on a shard: INIT, DELETE.
//
// Uses Replies and Describes.

#pragma once

#include "server/describes.h"

namespace tkv {

class KeyCatalog {
 public:
  // Makes the catalog of a shard.  All three outlive it.
  KeyCatalog(ShardCore* core, Replies* replies, Describes* describes)
      : core_(*core), replies_(*replies), describes_(*describes) {}

  // Returns true if the body of an INIT deserves memory: its head is valid and its size permitted.
  bool Admits(const Session& session, const Message& message) const;
  void OnInit(Session* session, Message& message, Effects* effects);
  void OnDelete(Session* session, const Message& message, Effects* effects);
  // Removes a key and its chunks.  Pulls that wait for them get NotFound.
  void Erase(const KeyId& id, const char* why, Effects* effects);

 private:
  // Returns true if an INIT is for a chunk of this key and server, with the right size.
  bool IsOfThisServer(const KeyMeta& meta, const Message& init) const;

  ShardCore& core_;
  Replies& replies_;
  Describes& describes_;
};

}  // namespace tkv
