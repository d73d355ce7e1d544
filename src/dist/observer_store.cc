#include "dist/observer_store.h"

#include <atomic>

#include "base/format.h"

namespace tkv {
namespace {

KVStore::KeyInfo InfoOf(const KeyMeta& meta) {
  return {meta.shape, meta.dtype, Context::Cpu(), meta.by_rows(), meta.row_count};
}

}  // namespace

std::string ObserverStore::NameOf(std::string_view verb, const KeyView& key) const {
  try {
    return CanonicalKey(number(), key);
  } catch (const Error& error) {
    throw Fail(error.code(), "{}: {}", verb, error.what());
  }
}

KeyMeta ObserverStore::Ask(std::string_view verb, const KeyView& key) const {
  const KeyRecord asked{Key(key), NameOf(verb, key), {}};
  core().calls.CheckOpen(verb);
  const std::string of(verb);
  const Outcome outcome =
      core().calls.AwaitOutcome(of, core().calls.Make(Operation::Describe{}, of, &asked));
  return *outcome.As<Outcome::Found>()->meta;
}

// Makes the store know a key.  A key that was deleted or created again since then is looked up
// again.
void ObserverStore::FindOne(std::string_view verb, const KeyView& key) {
  const std::string of(verb);
  KeyRecord found{Key(key), NameOf(verb, key), {}};
  core().calls.CheckOpen(verb);
  const bool is_known = core().worker->Ask(&Client::Knows, found.name);
  if (is_known && DistStore::Contains(key)) return;
  Outcome outcome;
  try {
    outcome = core().calls.AwaitOutcome(of, core().calls.Make(Operation::Open{false}, of, &found));
  } catch (const Error& error) {
    if (error.code() == Code::kNotFound) {
      const auto lock = core().Lock("in");
      core().keys.Erase(key);
    }
    throw;
  }
  found.meta = outcome.As<Outcome::Found>()->meta;
  const KeyMeta& meta = *found.meta;
  found.info = InfoOf(meta);
  found.mode = meta.mode;
  found.value_bytes = meta.row_bytes();
  const auto lock = core().Lock("in");
  core().keys.Add(std::make_shared<const KeyRecord>(std::move(found)));
}

KVStore::KeyInfo ObserverStore::Describe(const KeyView& key, std::string_view verb) const {
  return InfoOf(Ask(verb, key));
}

bool ObserverStore::Contains(const KeyView& key) const {
  try {
    Ask("in", key);
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
  const auto lock = core().Lock("round");
  const RecordPtr record = core().keys.Find(key);
  return record == nullptr ? 0 : std::atomic_ref(record->pulled).load();
}

}  // namespace tkv
