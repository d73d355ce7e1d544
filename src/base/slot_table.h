// A table of things that come and go: what one leaves behind, memory and all, the next one takes.

#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace tkv {

// Found by a number of the user's.  An entry stays where it is until it is erased.
template <typename T>
class SlotTable {
 public:
  // Null where there is none.
  T* Find(uint64_t id) { return const_cast<T*>(std::as_const(*this).Find(id)); }
  const T* Find(uint64_t id) const {
    const auto found = places_.find(id);
    return found == places_.end() ? nullptr : &slots_[found->second];
  }
  // A fresh one, under a number that is not in use.
  T& Add(uint64_t id) {
    size_t place = slots_.size();
    if (free_.empty()) {
      slots_.emplace_back();
    } else {
      place = free_.back();
      free_.pop_back();
    }
    places_.emplace(id, place);
    return slots_[place];
  }
  void Erase(uint64_t id) {
    const auto found = places_.find(id);
    if (found == places_.end()) return;
    slots_[found->second] = T();
    free_.push_back(found->second);
    places_.erase(found);
  }
  size_t size() const { return places_.size(); }
  bool empty() const { return places_.empty(); }
  // Calls f(id, entry) for each, in no order; f may not add or erase.
  template <typename F>
  void ForEach(F f) const {
    for (const auto& [id, place] : places_) f(id, slots_[place]);
  }

 private:
  std::deque<T> slots_;
  std::vector<size_t> free_;
  boost::unordered_flat_map<uint64_t, size_t> places_;
};

}  // namespace tkv
