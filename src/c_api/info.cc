// tkv_store_*: what a store is and has done.

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "c_api/items.h"
#include "c_api/values.h"

namespace tkv::c_api {
namespace {

namespace json = boost::json;

json::object JsonOf(const UserBytes& bytes) {
  return {{"init_bytes", bytes.init_bytes},
          {"pushed_bytes", bytes.pushed_bytes},
          {"pulled_bytes", bytes.pulled_bytes}};
}

json::object JsonOf(const TrafficStats& traffic) {
  return {{"wire_out_bytes", traffic.wire_out_bytes},
          {"wire_in_bytes", traffic.wire_in_bytes},
          {"shared_out_bytes", traffic.shared_out_bytes},
          {"shared_in_bytes", traffic.shared_in_bytes}};
}

json::object JsonOf(const PeerStats& peer) {
  json::object object = JsonOf(peer.traffic);
  object["state"] = peer.state;
  object["connections"] = peer.connections;
  object["resends"] = peer.resends;
  object["queued_messages"] = peer.queued_messages;
  object["queued_bytes"] = peer.queued_bytes;
  object["unanswered_messages"] = peer.unanswered_messages;
  object["unaccepted_bytes"] = peer.unaccepted_bytes;
  object["last_word_seconds"] =
      peer.last_word_seconds < 0 ? json::value() : json::value(peer.last_word_seconds);
  return object;
}

json::object JsonOf(const KeyStats& key) {
  json::object object = JsonOf(key.bytes);
  object["rounds"] = key.rounds;
  return object;
}

json::object VerbsOf(const StoreStats& stats) {
  json::object object;
  for (size_t i = 0; i < kVerbs; ++i) {
    object[Name(static_cast<Verb>(i))] = {{"calls", stats.verbs[i].calls},
                                          {"failed", stats.verbs[i].failed}};
  }
  return object;
}

json::object WaitsOf(const StoreStats& stats) {
  json::object object;
  for (size_t i = 0; i < kWaitCauses; ++i) {
    object[Name(static_cast<WaitCause>(i))] = {{"count", stats.waits[i].count},
                                               {"wait_seconds", stats.waits[i].seconds}};
  }
  return object;
}

json::array ListOf(const std::vector<std::string>& texts) {
  return json::array(texts.begin(), texts.end());
}

json::object JsonOf(const StoreStats& stats) {
  json::object keys, peers;
  for (const KeyStats& key : stats.keys) {
    keys[key.key.is_string() ? key.key.text() : Format("{}", key.key.number())] = JsonOf(key);
  }
  for (const PeerStats& peer : stats.peers) peers[peer.name] = JsonOf(peer);
  return {{"age_seconds", stats.age_seconds}, {"verbs", VerbsOf(stats)},
          {"bytes", JsonOf(stats.bytes)},     {"rounds", stats.rounds},
          {"key_count", stats.key_count},     {"keys", std::move(keys)},
          {"waits", WaitsOf(stats)},          {"operations_under_way", stats.operations_under_way},
          {"traffic", JsonOf(stats.traffic)}, {"resends", stats.resends},
          {"reconnects", stats.reconnects},   {"peers", std::move(peers)},
          {"workers", ListOf(stats.workers)}, {"servers", ListOf(stats.servers)}};
}

tkv_key_info InfoOf(const KVStore::KeyInfo& found) {
  static_assert(std::size(tkv_key_info{}.shape) == Shape::kRankMax);
  tkv_key_info info{};
  info.rank = found.shape.rank();
  std::copy(found.shape.begin(), found.shape.end(), info.shape);
  info.dtype = static_cast<tkv_dtype>(found.dtype);
  info.context = ToC(found.context);
  info.by_rows = found.by_rows ? 1 : 0;
  info.row_count = found.row_count;
  return info;
}

}  // namespace
}  // namespace tkv::c_api

using namespace tkv::c_api;

tkv_code tkv_store_type(tkv_store* store, tkv_text** type, tkv_error** error) {
  return Give(type, error, "type", [&] { return StoreOf(store, "type").type(); });
}
int32_t tkv_store_rank(const tkv_store* store) {
  return store == nullptr ? -1 : store->core->rank();
}
int32_t tkv_store_num_workers(const tkv_store* store) {
  return store == nullptr ? -1 : store->core->num_workers();
}
int32_t tkv_store_has_rejoined(const tkv_store* store) {
  return store != nullptr && store->core->rejoined() ? 1 : 0;
}

tkv_code tkv_store_round(tkv_store* store, const tkv_key* key, uint64_t* round, tkv_error** error) {
  return Put(round, error, "round", [&] {
    tkv::KVStore& core = StoreOf(store, "round");
    return core.Round(KeyOf(key, "round"));
  });
}
tkv_code tkv_store_size(tkv_store* store, size_t* keys, tkv_error** error) {
  return Put(keys, error, "size", [&] { return StoreOf(store, "size").size(); });
}
tkv_code tkv_store_contains(tkv_store* store, const tkv_key* key, int32_t* contains,
                            tkv_error** error) {
  return Put(contains, error, "contains", [&] {
    tkv::KVStore& core = StoreOf(store, "contains");
    return core.Contains(KeyOf(key, "contains"));
  });
}

tkv_code tkv_store_describe(tkv_store* store, const tkv_key* key, tkv_key_info* info,
                            tkv_error** error) {
  return Try(error, [&] {
    tkv::KVStore& core = StoreOf(store, "describe");
    Read(info, "describe", "tkv_key_info");
    Write(InfoOf(core.Describe(KeyOf(key, "describe"))), info);
  });
}
tkv_code tkv_store_keys(tkv_store* store, tkv_keys** keys, tkv_error** error) {
  return Give(keys, error, "keys", [&] { return StoreOf(store, "keys").Keys(); });
}
tkv_code tkv_store_stats(tkv_store* store, tkv_text** json, tkv_error** error) {
  return Give(json, error, "stats",
              [&] { return boost::json::serialize(JsonOf(StoreOf(store, "stats").Stats())); });
}
