#include "rates.h"

#include <algorithm>
#include <functional>
#include <map>

#include "look.h"

namespace tkv::cli {
namespace {

std::string NameOf(const KeyStatus& key) {
  return Printable(key.key.view().ToString()) +
         (key.store == 0 ? "" : " of store " + std::to_string(key.store));
}

double Grown(uint64_t before, uint64_t now, double seconds) {
  return now > before ? static_cast<double>(now - before) / seconds : 0;
}

}  // namespace

Rates RatesBetween(const JobStatus& before, const JobStatus& now, double seconds) {
  Rates rates;
  std::map<std::string, uint64_t> rounds;
  for (const KeyStatus& key : before.keys) rounds[NameOf(key)] = key.newest;
  for (const KeyStatus& key : now.keys) {
    const std::string name = NameOf(key);
    const auto found = rounds.find(name);  // a new key has no rate yet
    const double per_second = found == rounds.end() ? 0 : Grown(found->second, key.newest, seconds);
    rates.keys.push_back(
        {name, per_second, per_second * static_cast<double>(key.bytes), rates.keys.size()});
  }
  std::ranges::stable_sort(rates.keys, std::greater(), &Rate::bytes_per_second);
  for (size_t i = 0; i < now.workers.size(); ++i) {
    const WorkerStatus& worker = now.workers[i];
    const bool is_same = i < before.workers.size() && before.workers[i].life == worker.life;
    const WorkerStatus from = is_same ? before.workers[i] : worker;
    rates.workers.push_back({"worker " + std::to_string(i),
                             Grown(from.pushes, worker.pushes, seconds),
                             Grown(from.pushed_bytes, worker.pushed_bytes, seconds), i});
  }
  return rates;
}

std::string WhoIsSilent(const JobStatus& status) {
  for (const ServerStatus& server : status.servers) {
    if (!server.error.empty()) return server.error;
  }
  return {};
}

bool HasEnded(const JobStatus& status) {
  return std::ranges::all_of(status.workers, [](const WorkerStatus& worker) {
    return worker.state == "left" || worker.state == "lost";
  });
}

}  // namespace tkv::cli
