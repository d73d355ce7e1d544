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

void KeyTable::Insert(std::shared_ptr<Entry> entry) {
  Entry* const raw = entry.get();
  raw->place = entries_.insert(entries_.end(), std::move(entry));
  try {
    if (raw->key.is_string()) {
      by_text_.emplace(raw->key.text(), raw);
    } else {
      by_number_.emplace(raw->key.number(), raw);
    }
  } catch (...) {
    entries_.erase(raw->place);
    throw;
  }
}

void KeyTable::Erase(const KeyView& key) {
  const Entry* const entry = Find(key);
  if (key.is_string) {
    by_text_.erase(std::string(key.text));
  } else {
    by_number_.erase(key.number);
  }
  entries_.erase(entry->place);
}

}  // namespace tkv
