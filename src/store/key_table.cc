#include "store/key_table.h"

#include "base/format.h"
#include "store/checks.h"

namespace tkv {

Entry* KeyTable::Find(const KeyView& key) const {
  if (key.is_string) {
    const auto found = by_text_.find(key.text);
    return found == by_text_.end() ? nullptr : found->second;
  }
  const auto found = by_number_.find(key.number);
  return found == by_number_.end() ? nullptr : found->second;
}

Entry& KeyTable::Get(std::string_view verb, const KeyView& key) const {
  Entry* const entry = Find(key);
  if (entry != nullptr) return *entry;
  if (!entries_.empty()) CheckKind(verb, key, entries_.front()->key.is_string());
  throw Fail(Code::kNotFound, "{} {}: no such key, init it first", verb, key.ToString());
}

void KeyTable::Insert(std::span<const std::shared_ptr<Entry>> entries) {
  Entries added;
  try {
    for (const auto& entry : entries) {
      entry->place = added.insert(added.end(), entry);
      AddName(entry.get());
    }
  } catch (...) {
    for (const auto& entry : added) RemoveName(*entry);
    throw;
  }
  entries_.splice(entries_.end(), added);
}

void KeyTable::Erase(Entry* entry) noexcept {
  RemoveName(*entry);
  entries_.erase(entry->place);
}

void KeyTable::AddName(Entry* entry) {
  if (entry->key.is_string()) {
    by_text_.emplace(entry->key.text(), entry);
  } else {
    by_number_.emplace(entry->key.number(), entry);
  }
}

void KeyTable::RemoveName(const Entry& entry) noexcept {
  if (entry.key.is_string()) {
    by_text_.erase(entry.key.text());
  } else {
    by_number_.erase(entry.key.number());
  }
}

}  // namespace tkv
