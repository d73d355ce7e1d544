#include "client/announcements.h"

#include <algorithm>

namespace tkv {

void Announcements::AddRepeat(OpId op, uint32_t store) {
  const auto has_started = [](const Announcement& one) {
    return !one.is_over && one.has_started();
  };
  const auto last = std::find_if(queue_.rbegin(), queue_.rend(), has_started);
  queue_.insert(last.base(), {.op = op, .store = store, .is_repeat = true});
}

const Announcement* Announcements::Find(OpId op) const {
  const auto found = std::ranges::find(queue_, op, &Announcement::op);
  return found == queue_.end() ? nullptr : &*found;
}

Announcement* Announcements::Find(OpId op) {
  return const_cast<Announcement*>(std::as_const(*this).Find(op));
}

void Announcements::End(OpId op) {
  if (Announcement* const ended = Find(op)) ended->is_over = true;
}

bool Announcements::IsRepeated(uint32_t store, const KeyId& key) const {
  return std::ranges::any_of(queue_, [&](const Announcement& one) {
    return !one.is_over && one.is_repeat && one.store == store &&
           (!one.has_started() || one.Lists(key));
  });
}

bool Announcements::Holds(OpId op) const {
  return std::ranges::any_of(queue_, [&](const Announcement& one) {
    return one.op < op && (one.is_over || !one.is_repeat);
  });
}

bool Announcements::MayInit(OpId init, uint32_t store) const {
  return std::ranges::none_of(queue_, [&](const Announcement& one) {
    return !one.is_over && one.store == store && (one.has_started() || one.op < init);
  });
}

bool Announcements::IsInUse(uint32_t store, OpId before) const {
  return std::ranges::any_of(queue_, [&](const Announcement& one) {
    return !one.is_over && one.op < before && one.store == store;
  });
}

const Announcements::Last* Announcements::LastOf(uint32_t store) const {
  const auto found = last_.find(store);
  return found == last_.end() ? nullptr : &found->second;
}

}  // namespace tkv
