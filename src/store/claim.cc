#include "store/claim.h"

#include <algorithm>
#include <thread>

#include "base/format.h"
#include "store/checks.h"

namespace tkv {
namespace {

// A call of very many keys waits for memory at each of them: the arrays of the keys that come next
// are on their way meanwhile.
constexpr size_t kAhead = 8;

template <typename Item, typename Arrays>
void Prefetch(std::span<const Item> items, size_t i, Arrays Item::* arrays) {
  if (i >= items.size() || (items[i].*arrays).empty()) return;
  const auto* const array = reinterpret_cast<const char*>((items[i].*arrays)[0]);
  __builtin_prefetch(array);
  __builtin_prefetch(array + 64);
}

// Which keys the call uses, each looked at once.
void FindAndCheck(std::string_view verb, std::span<const PushItem> items,
                  std::span<const PullItem> outs, Claim* claim) {
  Shared* const shared = claim->shared;
  const uint64_t call = ++shared->calls;
  const auto group_of = [&](const KeyView& key) {
    Entry& entry = shared->keys.Get(verb, key);
    if (entry.call != call) {
      entry.call = call;
      entry.group = claim->entries.size();
      claim->entries.push_back(&entry);
      claim->largest_bytes = std::max(claim->largest_bytes, entry.bytes);
    }
    return entry.group;
  };
  claim->entries.reserve(std::max(items.size(), outs.size()));
  claim->push_groups.reserve(items.size());
  claim->pull_groups.reserve(outs.size());
  for (size_t i = 0; i < items.size(); ++i) {
    Prefetch(items, i + kAhead, &PushItem::values);
    const PushItem& item = items[i];
    const size_t group = group_of(item.key);
    const Entry& entry = *claim->entries[group];
    CheckValues(verb, item, entry.value.shape(), entry.value.dtype());
    claim->pushed_bytes += item.values.size() * entry.bytes;
    claim->push_groups.push_back(group);
  }
  for (size_t i = 0; i < outs.size(); ++i) {
    Prefetch(outs, i + kAhead, &PullItem::outs);
    const PullItem& item = outs[i];
    const size_t group = group_of(item.key);
    const Entry& entry = *claim->entries[group];
    CheckOuts(verb, item, entry.value.shape(), entry.value.dtype());
    claim->pulled_bytes += item.outs.size() * entry.bytes;
    claim->pull_groups.push_back(group);
  }
}

// Waits until the keys of the call are free, as an owner of their entries.
void WaitForKeys(std::string_view verb, const StoreOptions& options, const Claim& claim,
                 std::unique_lock<std::mutex>* lock) {
  Shared* const shared = claim.shared;
  std::vector<std::shared_ptr<const Entry>> entries;
  entries.reserve(claim.entries.size());
  for (const Entry* entry : claim.entries) entries.push_back(entry->shared_from_this());
  const auto is_deleted = [](const auto& entry) { return entry->is_deleted; };
  const auto is_free = [&](const auto& entry) {
    return !entry->is_written && (claim.mode == Claim::Mode::kRead || entry->readers == 0);
  };
  WaitForKeys(shared, options, verb, lock, [&] {
    return std::all_of(entries.begin(), entries.end(), is_free) ||
           std::any_of(entries.begin(), entries.end(), is_deleted) || shared->Refuses();
  });
  shared->CheckOpen(verb);
  const auto deleted = std::find_if(entries.begin(), entries.end(), is_deleted);
  if (deleted != entries.end()) {
    throw Fail(Code::kNotFound, "{} {}: the key has been deleted meanwhile", verb,
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
static void Take(std::string_view verb, const StoreOptions& options,
                 std::unique_lock<std::mutex>* lock, Claim* claim) {
  const std::thread::id self = std::this_thread::get_id();
  bool is_free = true;
  for (const Entry* entry : claim->entries) {
    if (entry->is_written && entry->writer == self) {
      throw Fail(Code::kFailedPrecondition,
                 "{} {}: the updater that is running is updating this key", verb,
                 entry->key.view().ToString());
    }
    is_free =
        is_free && !entry->is_written && (claim->mode == Claim::Mode::kRead || entry->readers == 0);
  }
  if (!is_free) WaitForKeys(verb, options, *claim, lock);
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

void ClaimKeys(std::string_view verb, std::span<const PushItem> items,
               std::span<const PullItem> outs, Shared* shared, const StoreOptions& options,
               std::unique_lock<std::mutex> lock, Claim* claim) {
  claim->shared = shared;
  FindAndCheck(verb, items, outs, claim);
  claim->mode = items.empty() ? Claim::Mode::kRead : Claim::Mode::kWrite;
  Take(verb, options, &lock, claim);
  for (size_t i = 0; i < items.size(); ++i) {
    claim->entries[claim->push_groups[i]]->pushed_arrays += items[i].values.size();
  }
  for (size_t i = 0; i < outs.size(); ++i) {
    claim->entries[claim->pull_groups[i]]->pulled_arrays += outs[i].outs.size();
  }
}

void ClaimAllKeys(std::string_view verb, Claim::Mode mode, Shared* shared,
                  const StoreOptions& options, std::unique_lock<std::mutex> lock, Claim* claim) {
  claim->shared = shared;
  claim->mode = mode;
  for (const auto& entry : shared->keys.entries()) claim->entries.push_back(entry.get());
  Take(verb, options, &lock, claim);
}

}  // namespace tkv
