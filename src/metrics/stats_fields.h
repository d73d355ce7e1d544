// The fields of StoreStats by name: one list for every language that shows them.

#pragma once

#include <optional>

#include "tkv/stats.h"

namespace tkv {

// Writes the fields of a statistic to `fields`, an object under construction in JSON or Python:
//   Put(name, value)    adds a uint64_t, a double, an optional of one, a string or a vector of
//                       strings
//   Inner(name, fill)   adds an inner object and calls `fill` with it
//   InnerOfKey(key, fill)  the same, under the name of a key
template <typename Fields>
void PutFields(const UserBytes& bytes, Fields& fields) {
  fields.Put("init_bytes", bytes.init_bytes);
  fields.Put("pushed_bytes", bytes.pushed_bytes);
  fields.Put("pulled_bytes", bytes.pulled_bytes);
}

template <typename Fields>
void PutFields(const TrafficStats& traffic, Fields& fields) {
  fields.Put("wire_out_bytes", traffic.wire_out_bytes);
  fields.Put("wire_in_bytes", traffic.wire_in_bytes);
  fields.Put("shared_out_bytes", traffic.shared_out_bytes);
  fields.Put("shared_in_bytes", traffic.shared_in_bytes);
  fields.Put("encrypted_out_bytes", traffic.encrypted_out_bytes);
  fields.Put("encrypted_in_bytes", traffic.encrypted_in_bytes);
}

template <typename Fields>
void PutFields(const PeerStats& peer, Fields& fields) {
  PutFields(peer.traffic, fields);
  fields.Put("state", peer.state);
  fields.Put("connections", peer.connections);
  fields.Put("resends", peer.resends);
  fields.Put("queued_messages", peer.queued_messages);
  fields.Put("queued_bytes", peer.queued_bytes);
  fields.Put("unanswered_messages", peer.unanswered_messages);
  fields.Put("unaccepted_bytes", peer.unaccepted_bytes);
  fields.Put("last_word_seconds", peer.last_word_seconds < 0
                                      ? std::optional<double>()
                                      : std::optional(peer.last_word_seconds));
}

template <typename Fields>
void PutFields(const KeyStats& key, Fields& fields) {
  PutFields(key.bytes, fields);
  fields.Put("rounds", key.rounds);
}

template <typename Fields>
void PutFields(const StoreStats& stats, Fields& fields) {
  fields.Put("age_seconds", stats.age_seconds);
  fields.Inner("verbs", [&](Fields& verbs) {
    for (size_t i = 0; i < kVerbs; ++i) {
      verbs.Inner(Name(static_cast<Verb>(i)), [&](Fields& verb) {
        verb.Put("calls", stats.verbs[i].calls);
        verb.Put("failed", stats.verbs[i].failed);
      });
    }
  });
  fields.Inner("bytes", [&](Fields& bytes) { PutFields(stats.bytes, bytes); });
  fields.Put("rounds", stats.rounds);
  fields.Put("key_count", stats.key_count);
  fields.Inner("keys", [&](Fields& keys) {
    for (const KeyStats& key : stats.keys) {
      keys.InnerOfKey(key.key.view(), [&](Fields& inner) { PutFields(key, inner); });
    }
  });
  fields.Inner("waits", [&](Fields& waits) {
    for (size_t i = 0; i < kWaitCauses; ++i) {
      waits.Inner(Name(static_cast<WaitCause>(i)), [&](Fields& wait) {
        wait.Put("count", stats.waits[i].count);
        wait.Put("wait_seconds", stats.waits[i].seconds);
      });
    }
  });
  fields.Put("operations_under_way", stats.operations_under_way);
  fields.Inner("traffic", [&](Fields& traffic) { PutFields(stats.traffic, traffic); });
  fields.Put("resends", stats.resends);
  fields.Put("reconnects", stats.reconnects);
  fields.Inner("peers", [&](Fields& peers) {
    for (const PeerStats& peer : stats.peers) {
      peers.Inner(peer.name, [&](Fields& inner) { PutFields(peer, inner); });
    }
  });
  fields.Put("workers", stats.workers);
  fields.Put("servers", stats.servers);
}

}  // namespace tkv
