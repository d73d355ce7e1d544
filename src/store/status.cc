#include "tkv/status.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <initializer_list>

#include "base/logfmt.h"

namespace tkv {
namespace {

namespace json = boost::json;

bool IsOneOf(const std::string& state, std::initializer_list<std::string_view> states) {
  return std::ranges::find(states, state) != states.end();
}

json::object ObjectOf(const WorkerStatus& worker) {
  return {{"state", worker.state},
          {"life", worker.life},
          {"pushes", worker.pushes},
          {"pushed_bytes", worker.pushed_bytes}};
}

json::object ObjectOf(const ServerStatus& server) {
  return {{"state", server.state},
          {"life", server.life},
          {"address", server.address},
          {"error", server.error},
          {"chunks", server.chunks},
          {"value_bytes", server.value_bytes},
          {"other_bytes", server.other_bytes}};
}

json::object ObjectOf(const KeyStatus& key) {
  json::object object;
  object["store"] = key.store;
  if (key.key.is_string()) {
    object["key"] = key.key.text();
  } else {
    object["key"] = key.key.number();
  }
  object["shape"] = json::array(key.shape.begin(), key.shape.end());
  object["dtype"] = Name(key.dtype);
  object["by_rows"] = key.by_rows;
  object["row_count"] = key.row_count;
  object["async"] = key.is_async;
  object["chunks"] = key.chunks;
  object["bytes"] = key.bytes;
  object["round"] = key.round;
  object["newest"] = key.newest;
  object["waiting"] = key.waiting;
  return object;
}

json::object ObjectOf(const RoundStatus& round) {
  return {{"store", round.store},
          {"key", round.key},
          {"round", round.round},
          {"seconds", round.seconds},
          {"waits_for", json::array(round.waits_for.begin(), round.waits_for.end())},
          {"waits_for_count", round.waits_for_count}};
}

template <typename Part>
json::array ArrayOf(const std::vector<Part>& parts) {
  json::array array;
  for (const Part& part : parts) array.push_back(ObjectOf(part));
  return array;
}

}  // namespace

std::string KeyStatus::ToJson() const { return json::serialize(ObjectOf(*this)); }

std::string JobStatus::wrong() const {
  if (!head_is_open) return "the head is out of reach";
  for (size_t i = 0; i < servers.size(); ++i) {
    if (!servers[i].error.empty()) return servers[i].error;
    if (servers[i].state != "alive") {
      return "server " + std::to_string(i) + " is " + servers[i].state;
    }
  }
  for (size_t i = 0; i < workers.size(); ++i) {
    if (IsOneOf(workers[i].state, {"alive", "left"})) continue;
    return "worker " + std::to_string(i) + " is " + workers[i].state;
  }
  return {};
}

std::string JobStatus::ToJson() const {
  json::object object;
  object["url"] = url;
  object["job"] = Printable(job);  // chosen by a user: may have any bytes
  object["on_death"] = on_death;
  object["epoch"] = epoch;
  object["head_is_open"] = head_is_open;
  object["wrong"] = wrong();
  object["workers"] = ArrayOf(workers);
  object["servers"] = ArrayOf(servers);
  object["observers"] = observers;
  object["keys"] = ArrayOf(keys);
  object["rounds"] = ArrayOf(rounds);
  object["slowest"] = slowest < 0 ? json::value() : json::value(slowest);
  object["slowest_rounds"] = slowest_rounds;
  object["slowest_seconds"] = slowest_seconds;
  return json::serialize(object);
}

}  // namespace tkv
