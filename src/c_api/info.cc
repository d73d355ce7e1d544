// tkv_store_*: properties and counters of a store.

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_from.hpp>

#include "c_api/items.h"
#include "c_api/values.h"
#include "metrics/stats_fields.h"
#include "tkv/config.h"

namespace tkv::c_api {
namespace {

namespace json = boost::json;

class JsonFields {
 public:
  template <typename Value>
  void Put(std::string_view name, const Value& value) {
    object_[name] = json::value_from(value);
  }
  template <typename Fill>
  void Inner(std::string_view name, Fill fill) {
    JsonFields inner;
    fill(inner);
    object_[name] = std::move(inner.object_);
  }
  template <typename Fill>
  void InnerOfKey(const KeyView& key, Fill fill) {
    Inner(key.is_string ? std::string(key.text) : Format("{}", key.number), fill);
  }
  std::string Text() const { return json::serialize(object_); }

 private:
  json::object object_;
};

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
int32_t tkv_store_is_distributed(const tkv_store* store) {
  return store != nullptr && tkv::IsDistributed(store->core->type()) ? 1 : 0;
}
tkv_code tkv_store_num_dead_node(tkv_store* store, int32_t node, int32_t* dead, tkv_error** error) {
  return Put(dead, error, "num_dead_node",
             [&] { return StoreOf(store, "num_dead_node").NumDeadNode(node); });
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
  return Give(json, error, "stats", [&] {
    JsonFields fields;
    PutFields(StoreOf(store, "stats").Stats(), fields);
    return fields.Text();
  });
}
tkv_code tkv_store_status(tkv_store* store, tkv_text** json, tkv_error** error) {
  return Give(json, error, "status", [&] { return StoreOf(store, "status").Status().ToJson(); });
}
tkv_code tkv_store_url(tkv_store* store, tkv_text** url, tkv_error** error) {
  return Give(url, error, "url", [&] { return StoreOf(store, "url").url(); });
}
