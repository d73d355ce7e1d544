#include "dist/store_keys.h"

#include <algorithm>
#include <optional>

#include "base/format.h"
#include "store/checks.h"

namespace tkv {

std::unique_lock<std::mutex> StoreKeys::Lock(std::string_view verb) const {
  calls_.CheckProcess(verb);  // a child of fork() must not lock
  std::unique_lock lock(mutex_);
  calls_.CheckOpen(verb);
  return lock;
}

RecordPtr StoreKeys::Find(const KeyView& key) const {
  const auto found = records_.find(key);
  return found == records_.end() ? nullptr : found->second;
}

RecordPtr StoreKeys::Get(std::string_view verb, const KeyView& key) const {
  if (RecordPtr record = Find(key)) return record;
  if (!order_.empty()) CheckKind(verb, key, order_.front().is_string());
  throw Fail(Code::kNotFound, "{} {}: no such key, init it first", verb, key.ToString());
}

std::vector<RecordPtr> StoreKeys::Records() const {
  std::vector<RecordPtr> records;
  records.reserve(order_.size());
  for (const Key& key : order_) records.push_back(records_.find(key)->second);
  return records;
}

uint64_t StoreKeys::MostRounds() const {
  uint64_t most = 0;
  for (const auto& [key, record] : records_) most = std::max(most, record->rounds());
  return most;
}

void StoreKeys::CheckNew(std::string_view verb, std::span<const KeyView> keys) const {
  CheckNewKeys(verb, keys,
               order_.empty() ? std::nullopt : std::optional(order_.front().is_string()),
               [&](const KeyView& key) { return Contains(key); });
}

void StoreKeys::Add(const RecordPtr& record) {
  const bool is_new = records_.insert_or_assign(record->key, record).second;
  if (is_new) order_.push_back(record->key);
}

void StoreKeys::Erase(const KeyView& key) {
  const auto found = records_.find(key);
  if (found == records_.end()) return;
  std::erase(order_, found->second->key);
  records_.erase(found);
}

void StoreKeys::Clear() {
  records_.clear();
  order_.clear();
}

}  // namespace tkv
