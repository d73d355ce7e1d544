// The keys that exist on a shard: INIT, DELETE.
//
// Uses Replies and Describes.

#pragma once

#include "server/describes.h"

namespace tkv {

class KeyCatalog {
 public:
  // Makes the catalog of a shard, from the shard's other parts.
  KeyCatalog(ShardCore* core, Replies* replies, Describes* describes)
      : core_(*core), replies_(*replies), describes_(*describes) {}

  // Returns true if the body of an INIT deserves memory: its head is valid and its size permitted.
  bool Admits(const Session& session, const Message& message) const;
  void OnInit(Session* session, Message& message, Effects* effects);
  void OnDelete(Session* session, const Message& message, Effects* effects);
  // Removes a key and its chunks.  Pulls that wait for them get NotFound.
  void Erase(const KeyId& id, const char* why, Effects* effects);

 private:
  // Returns the own rule of the key that an INIT creates, or null if the key uses the store's.
  //   throws  the reason why the sender may not create this key or chunk
  RulePtr RuleOfNewKey(const SessionId& maker, const Message& init, const KeyMeta& meta) const;
  // Returns the meta of the existing key if the INIT changes nothing, or null if it may create or
  // replace its chunk.
  //   throws  kAlreadyExists (a key of another name has this id)
  const KeyMeta* MetaThatStays(const KeyMeta& meta, const Message& init) const;
  // Returns the chunk of an INIT, with the values of its body.
  //   throws  kResourceExhausted (no memory); kInvalidArgument (the rows are not valid)
  Chunk MakeChunk(const KeyMeta& meta, const RulePtr& own, Message* init) const;
  // Puts a new chunk into the tables, with its key if that is new or has another meta.
  void Enter(const Message& init, KeyMeta meta, const RulePtr& own, Chunk fresh, Effects* effects);
  // Returns true if an INIT is for a chunk of this key and server, with the right size.
  bool IsOfThisServer(const KeyMeta& meta, const Message& init) const;

  ShardCore& core_;
  Replies& replies_;
  Describes& describes_;
};

}  // namespace tkv
