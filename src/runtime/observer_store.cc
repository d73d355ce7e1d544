#include "runtime/observer_store.h"

#include <algorithm>
#include <atomic>

#include "base/duration.h"
#include "base/format.h"

namespace tkv {

void ObserverStore::Refuse(std::string_view verb) const {
  Lock(verb);  // that it is closed comes first
  throw Fail(
      Code::kFailedPrecondition,
      "{}: this store is an observer's, which only reads; create() makes a worker of the job",
      verb);
}

// A key that has been deleted, or made anew, since it was found is found again.
void ObserverStore::FindOne(std::string_view verb, const KeyView& key) const {
  auto* const self = const_cast<ObserverStore*>(this);  // what is known of a key is a cache
  const std::string of(verb);
  std::string name;
  try {
    name = CanonicalKey(number(), key);
  } catch (const Error& error) {
    throw Fail(error.code(), "{}: {}", verb, error.what());
  }
  Lock(verb);  // a store that is closed asks nobody
  const bool is_known =
      worker()->Run([&](ClientNode& node, Time) { return node.client().Knows(name); });
  if (is_known && Has(key)) return;
  KeyRecord found{Key(key), name, {}};
  Operation open = Make(Operation::Kind::kOpen, of, &found);
  open.may_wait = false;
  const Outcome outcome = self->AwaitOutcome(of, std::move(open));
  const KeyMeta& meta = *outcome.meta;
  found.info = {meta.shape, meta.dtype, Context::Cpu(), meta.by_rows(), meta.row_count};
  found.mode = meta.mode;
  found.value_bytes = meta.row_bytes();
  found.meta = outcome.meta;
  self->AwaitOutcome(of, Make(Operation::Kind::kFindBase, of, &found));
  self->Add(std::make_shared<const KeyRecord>(std::move(found)));
}

KVStore::KeyInfo ObserverStore::Describe(const KeyView& key, std::string_view verb) const {
  FindOne(verb, key);
  return DistStore::Describe(key, verb);
}

bool ObserverStore::Contains(const KeyView& key) const {
  try {
    FindOne("in", key);
  } catch (const Error& error) {
    if (error.code() == Code::kNotFound) return false;
    throw;
  }
  return true;
}

std::vector<Key> ObserverStore::Keys() const {
  std::vector<Key> keys;
  const ServerListings listings = ListAll("keys");
  for (const std::string& error : listings.errors) {
    if (!error.empty()) throw Fail(Code::kUnavailable, "keys: {}", error);
  }
  for (const KeyStatus& key : ListedKeys(listings)) {
    if (key.store == number()) keys.push_back(key.key);
  }
  return keys;
}

uint64_t ObserverStore::Round(const KeyView& key) const {
  RecordPtr record;
  {
    const auto lock = Lock("round");
    record = Peek(key);
  }
  if (record == nullptr) return 0;
  const uint64_t version = std::atomic_ref(record->pulled).load();
  return version +
         worker()->Run([&](ClientNode& node, Time) { return node.client().BaseOf(record->name); });
}

}  // namespace tkv
