#include "metrics/counters.h"

#include <algorithm>

namespace tkv {
namespace {

constexpr std::array<std::string_view, kWaitCauses> kCauses = {
    "key",   "array", "accepted", "answer", "round",     "pull",
    "order", "link",  "credit",   "window", "pull_bytes"};
constexpr std::array<std::string_view, kVerbs> kVerbNames = {
    "init",   "push",        "pull",          "pushpull", "broadcast", "barrier",
    "delete", "set_updater", "set_optimizer", "save",     "load"};

double Seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e9; }

uint64_t SumOf(const UserBytes& bytes) {
  return bytes.init_bytes + bytes.pushed_bytes + bytes.pulled_bytes;
}

}  // namespace

std::string_view Name(WaitCause cause) noexcept { return kCauses[static_cast<size_t>(cause)]; }
std::string_view Name(Verb verb) noexcept { return kVerbNames[static_cast<size_t>(verb)]; }

void WaitCounts::AddTo(StoreStats* stats) const {
  for (size_t i = 0; i < kWaitCauses; ++i) {
    stats->waits[i].count += counts_[i].count;
    stats->waits[i].seconds += Seconds(counts_[i].nanoseconds);
  }
}

void SharedWaitCounts::Add(WaitCause cause, int64_t nanoseconds) noexcept {
  Count& count = counts_[static_cast<size_t>(cause)];
  count.count.fetch_add(1, std::memory_order_relaxed);
  count.nanoseconds.fetch_add(nanoseconds, std::memory_order_relaxed);
}

void SharedWaitCounts::AddTo(StoreStats* stats) const {
  for (size_t i = 0; i < kWaitCauses; ++i) {
    stats->waits[i].count += counts_[i].count.load(std::memory_order_relaxed);
    stats->waits[i].seconds += Seconds(counts_[i].nanoseconds.load(std::memory_order_relaxed));
  }
}

void VerbCounts::AddTo(StoreStats* stats) const {
  for (size_t i = 0; i < kVerbs; ++i) {
    stats->verbs[i].calls += counts_[i].calls.load(std::memory_order_relaxed);
    stats->verbs[i].failed += counts_[i].failed.load(std::memory_order_relaxed);
  }
}

UserBytes& operator+=(UserBytes& sum, const UserBytes& more) noexcept {
  sum.init_bytes += more.init_bytes;
  sum.pushed_bytes += more.pushed_bytes;
  sum.pulled_bytes += more.pulled_bytes;
  return sum;
}

TrafficStats& operator+=(TrafficStats& sum, const TrafficStats& more) noexcept {
  sum.wire_out_bytes += more.wire_out_bytes;
  sum.wire_in_bytes += more.wire_in_bytes;
  sum.shared_out_bytes += more.shared_out_bytes;
  sum.shared_in_bytes += more.shared_in_bytes;
  sum.encrypted_out_bytes += more.encrypted_out_bytes;
  sum.encrypted_in_bytes += more.encrypted_in_bytes;
  return sum;
}

void AddKeys(std::vector<KeyStats> keys, const KeyStats& deleted, StoreStats* stats) {
  stats->bytes += deleted.bytes;
  stats->rounds += deleted.rounds;
  for (const KeyStats& key : keys) {
    stats->bytes += key.bytes;
    stats->rounds += key.rounds;
  }
  stats->key_count = keys.size();
  const size_t told = std::min(keys.size(), StoreStats::kKeysMax);
  // Equal ones in the order of their creation, so that the answer does not depend on the sort.
  std::stable_sort(keys.begin(), keys.end(), [](const KeyStats& a, const KeyStats& b) {
    return SumOf(a.bytes) > SumOf(b.bytes);
  });
  keys.erase(keys.begin() + static_cast<ptrdiff_t>(told), keys.end());
  stats->keys = std::move(keys);
}

}  // namespace tkv
