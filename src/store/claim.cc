#include "store/claim.h"

#include <algorithm>
#include <thread>

#include "base/format.h"
#include "store/checks.h"
#include "store/key_hash.h"

namespace tkv {
namespace {

// Prefetches the arrays of later keys: a call with very many keys otherwise waits for memory at
// each of them.
constexpr size_t kAhead = 8;

template <typename Item, typename Arrays>
void Prefetch(std::span<const Item> items, size_t i, Arrays Item::* arrays) {
  if (i >= items.size() || (items[i].*arrays).empty()) return;
  const auto* const array = reinterpret_cast<const char*>((items[i].*arrays)[0]);
  __builtin_prefetch(array);
  __builtin_prefetch(array + 64);
}

// Returns the group of a key in the call.  Each key is looked up as often as it appears.
size_t GroupOf(const KeyView& key, Claim* claim) {
  Shared* const shared = claim->shared;
  Entry& entry = shared->keys.Get(claim->verb, key);
  if (entry.call != shared->calls) {
    entry.call = shared->calls;
    entry.group = claim->entries.size();
    claim->entries.push_back(&entry);
    claim->largest_bytes = std::max(claim->largest_bytes, entry.bytes);
    claim->has_rows = claim->has_rows || entry.by_rows();
  }
  return entry.group;
}

Shape DenseShape(std::string_view verb, const Entry& entry) {
  const RowsKey& rows = *entry.rows;
  return WholeTableShape(verb, entry.key.view(), rows.row_shape, rows.row_count, rows.row_bytes);
}

RowGeometry GeometryOf(std::string_view verb, const Entry& entry) {
  if (entry.by_rows()) return {entry.rows->row_shape, entry.dtype(), entry.rows->row_count};
  return RowsOfArray(verb, entry.key.view(), entry.value.shape(), entry.dtype());
}

// Finds the keys of a call, checks the items, and records the group of each item.
void FindAndCheck(std::span<const PushItem> items, std::span<const PullItem> outs, Claim* claim) {
  const std::string_view verb = claim->verb;
  claim->entries.reserve(std::max(items.size(), outs.size()));
  claim->push_groups.reserve(items.size());
  claim->pull_groups.reserve(outs.size());
  for (size_t i = 0; i < items.size(); ++i) {
    Prefetch(items, i + kAhead, &PushItem::values);
    const PushItem& item = items[i];
    const size_t group = GroupOf(item.key, claim);
    const Entry& entry = *claim->entries[group];
    if (entry.by_rows()) {
      CheckValues(verb, item, DenseShape(verb, entry), entry.dtype());
    } else {
      CheckValues(verb, item, entry.value.shape(), entry.value.dtype());
    }
    claim->pushed_bytes += item.values.size() * entry.bytes;
    claim->push_groups.push_back(group);
  }
  for (size_t i = 0; i < outs.size(); ++i) {
    Prefetch(outs, i + kAhead, &PullItem::outs);
    const PullItem& item = outs[i];
    const size_t group = GroupOf(item.key, claim);
    const Entry& entry = *claim->entries[group];
    if (entry.by_rows()) {
      CheckOuts(verb, item, DenseShape(verb, entry), entry.dtype());
    } else {
      CheckOuts(verb, item, entry.value.shape(), entry.value.dtype());
    }
    claim->pulled_bytes += item.outs.size() * entry.bytes;
    claim->pull_groups.push_back(group);
  }
}

void FindAndCheckRows(std::span<const RowsPushItem> items, Claim* claim) {
  const std::string_view verb = claim->verb;
  for (const RowsPushItem& item : items) {
    const size_t group = GroupOf(item.key, claim);
    const Entry& entry = *claim->entries[group];
    if (item.values.empty()) {
      throw Fail(Code::kInvalidArgument, "{} {}: the list of values is empty", verb,
                 item.key.ToString());
    }
    const RowGeometry geometry = GeometryOf(verb, entry);
    ForEachOf("value", item.values.size(),
              [&](size_t i) { CheckRows(verb, item.key, item.values[i], geometry); });
    claim->push_groups.push_back(group);
  }
}

void FindAndCheckRows(std::span<const RowsPullItem> outs, Claim* claim) {
  const std::string_view verb = claim->verb;
  for (const RowsPullItem& item : outs) {
    const size_t group = GroupOf(item.key, claim);
    const Entry& entry = *claim->entries[group];
    if (!entry.by_rows()) {
      throw Fail(Code::kInvalidArgument, "{} {}: the key is not kept by rows; pull it as it is",
                 verb, item.key.ToString());
    }
    CheckRowsOut(verb, item, GeometryOf(verb, entry));
    claim->pull_groups.push_back(group);
  }
}

// Throws if a key has both rows and whole values in the call.
//   row_keys  number of the first keys, which have rows
void CheckNoneIsBoth(size_t rows, size_t row_keys, const Claim& claim) {
  for (size_t i = rows; i < claim.push_groups.size(); ++i) {
    if (claim.push_groups[i] >= row_keys) continue;
    throw Fail(Code::kInvalidArgument,
               "{} {}: the call pushes rows and a whole array to it; use one of them", claim.verb,
               claim.entries[claim.push_groups[i]]->key.view().ToString());
  }
}

// Counts the arrays of pushes of whole values; `groups` are the groups of the items.
void CountPushed(std::span<const PushItem> items, std::span<const size_t> groups,
                 const Claim& claim) {
  for (size_t i = 0; i < items.size(); ++i) {
    Entry& entry = *claim.entries[groups[i]];
    entry.pushed_arrays += items[i].values.size();
    if (!entry.by_rows()) continue;
    for (const NDArray* value : items[i].values) entry.of_rows.pushed_bytes += value->bytes();
  }
}

// Waits until the keys of the call are free, and shares the ownership of their entries meanwhile.
void WaitForKeys(const Claim& claim, std::unique_lock<std::mutex>* lock) {
  Shared* const shared = claim.shared;
  std::vector<std::shared_ptr<const Entry>> entries;
  entries.reserve(claim.entries.size());
  for (const Entry* entry : claim.entries) entries.push_back(entry->shared_from_this());
  const auto is_deleted = [](const auto& entry) { return entry->is_deleted; };
  const auto is_free = [&](const auto& entry) {
    return !entry->is_written && (claim.mode == Claim::Mode::kRead || entry->readers == 0);
  };
  WaitForKeys(shared, claim.options, claim.verb, lock, [&]() -> const Key* {
    if (std::any_of(entries.begin(), entries.end(), is_deleted) || shared->Refuses())
      return nullptr;
    const auto used = std::find_if_not(entries.begin(), entries.end(), is_free);
    return used == entries.end() ? nullptr : &(*used)->key;
  });
  shared->CheckOpen(claim.verb);
  const auto deleted = std::find_if(entries.begin(), entries.end(), is_deleted);
  if (deleted != entries.end()) {
    throw Fail(Code::kNotFound, "{} {}: the key has been deleted meanwhile", claim.verb,
               (*deleted)->key.view().ToString());
  }
}

}  // namespace

bool Shared::IsUpdating() const {
  const std::thread::id self = std::this_thread::get_id();
  return std::any_of(keys.entries().begin(), keys.entries().end(),
                     [&](const auto& entry) { return entry->is_written && entry->writer == self; });
}

void Shared::CheckOpen(std::string_view verb) const {
  if (Refuses()) throw Fail(Code::kFailedPrecondition, "{}: the store is closed", verb);
}

// Waits until the keys of the claim are free and takes them.
static void Take(std::unique_lock<std::mutex>* lock, Claim* claim) {
  const std::thread::id self = std::this_thread::get_id();
  bool is_free = true;
  for (const Entry* entry : claim->entries) {
    if (entry->is_written && entry->writer == self) {
      throw Fail(Code::kFailedPrecondition,
                 "{} {}: the updater that is running is updating this key", claim->verb,
                 entry->key.view().ToString());
    }
    is_free =
        is_free && !entry->is_written && (claim->mode == Claim::Mode::kRead || entry->readers == 0);
  }
  if (!is_free) WaitForKeys(*claim, lock);
  for (Entry* entry : claim->entries) {
    if (claim->mode == Claim::Mode::kWrite) {
      entry->is_written = true;
      entry->writer = self;
    } else {
      ++entry->readers;
    }
  }
  claim->updater = claim->shared->updater;
  claim->is_held = true;
}

void ClaimKeys(std::span<const PushItem> items, std::span<const PullItem> outs,
               std::unique_lock<std::mutex> lock, Claim* claim) {
  ++claim->shared->calls;
  FindAndCheck(items, outs, claim);
  claim->mode = items.empty() ? Claim::Mode::kRead : Claim::Mode::kWrite;
  Take(&lock, claim);
}

void ClaimRows(std::span<const RowsPushItem> items, std::span<const PushItem> whole,
               std::unique_lock<std::mutex> lock, Claim* claim) {
  ++claim->shared->calls;
  FindAndCheckRows(items, claim);
  const size_t row_keys = claim->entries.size();
  FindAndCheck(whole, {}, claim);
  CheckNoneIsBoth(items.size(), row_keys, *claim);
  claim->mode = Claim::Mode::kWrite;
  Take(&lock, claim);
}

void ClaimRows(std::span<const RowsPullItem> outs, std::unique_lock<std::mutex> lock,
               Claim* claim) {
  ++claim->shared->calls;
  FindAndCheckRows(outs, claim);
  Take(&lock, claim);
}

void PutNewKeys(std::span<const InitItem> items, std::span<const std::shared_ptr<Entry>> entries,
                std::span<const PullItem> outs, Claim* claim) {
  boost::unordered_flat_map<KeyView, size_t, KeyHash, KeyEqual> groups;
  groups.reserve(items.size());
  claim->entries.reserve(items.size());
  claim->pull_groups.reserve(outs.size());
  for (size_t i = 0; i < items.size(); ++i) {
    groups.emplace(items[i].key, i);
    claim->entries.push_back(entries[i].get());
    claim->largest_bytes = std::max(claim->largest_bytes, entries[i]->bytes);
  }
  for (const PullItem& item : outs) {
    const size_t group = groups.at(item.key);
    claim->pulled_bytes += item.outs.size() * claim->entries[group]->bytes;
    claim->pull_groups.push_back(group);
  }
}

void CountTransfers(std::span<const PushItem> items, std::span<const PullItem> outs,
                    const Claim& claim) {
  std::lock_guard lock(claim.shared->mutex);
  CountPushed(items, {claim.push_groups.data(), items.size()}, claim);
  for (size_t i = 0; i < outs.size(); ++i) {
    Entry& entry = *claim.entries[claim.pull_groups[i]];
    entry.pulled_arrays += outs[i].outs.size();
    if (!entry.by_rows()) continue;
    entry.of_rows.pulled_bytes +=
        outs[i].outs.size() * entry.rows->row_count * entry.rows->row_bytes;
  }
}

void CountTransfers(std::span<const RowsPushItem> items, std::span<const PushItem> whole,
                    const Claim& claim) {
  std::lock_guard lock(claim.shared->mutex);
  CountPushed(whole, {claim.push_groups.data() + items.size(), whole.size()}, claim);
  for (size_t i = 0; i < items.size(); ++i) {
    UserBytes& bytes = claim.entries[claim.push_groups[i]]->of_rows;
    for (const Rows* rows : items[i].values) bytes.pushed_bytes += rows->values.bytes();
  }
}

void CountTransfers(std::span<const RowsPullItem> outs, const Claim& claim) {
  std::lock_guard lock(claim.shared->mutex);
  for (size_t i = 0; i < outs.size(); ++i) {
    Entry& entry = *claim.entries[claim.pull_groups[i]];
    entry.of_rows.pulled_bytes += static_cast<size_t>(outs[i].ids->size()) * entry.rows->row_bytes;
  }
}

void ClaimKey(const KeyView& key, Claim::Mode mode, std::unique_lock<std::mutex> lock,
              Claim* claim) {
  claim->mode = mode;
  claim->entries.push_back(&claim->shared->keys.Get(claim->verb, key));
  Take(&lock, claim);
}

void ClaimAllKeys(Claim::Mode mode, std::unique_lock<std::mutex> lock, Claim* claim) {
  claim->mode = mode;
  for (const auto& entry : claim->shared->keys.entries()) claim->entries.push_back(entry.get());
  Take(&lock, claim);
}

}  // namespace tkv
