// A table for entries that are added and erased often: an erased entry leaves its slot to the next
// one.

#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace tkv {

// A map from numbers that the user chooses to entries.  An entry keeps its address until it is
// erased.
template <typename T>
class PooledTable {
 public:
  // Returns the entry, or null if there is none.
  T* Find(uint64_t id) { return const_cast<T*>(std::as_const(*this).Find(id)); }
  const T* Find(uint64_t id) const {
    const auto found = indices_.find(id);
    return found == indices_.end() ? nullptr : &entries_[found->second];
  }
  // Returns a fresh entry under a number that is not in use.
  T& Add(uint64_t id) {
    size_t index = entries_.size();
    if (free_.empty()) {
      entries_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    indices_.emplace(id, index);
    return entries_[index];
  }
  void Erase(uint64_t id) {
    const auto found = indices_.find(id);
    if (found == indices_.end()) return;
    entries_[found->second] = T();
    free_.push_back(found->second);
    indices_.erase(found);
  }
  size_t size() const { return indices_.size(); }
  bool empty() const { return indices_.empty(); }
  // Calls f(id, entry) for each entry, in no order; f may not add or erase.
  template <typename F>
  void ForEach(F f) const {
    for (const auto& [id, index] : indices_) f(id, entries_[index]);
  }

 private:
  std::deque<T> entries_;
  std::vector<size_t> free_;
  boost::unordered_flat_map<uint64_t, size_t> indices_;
};

}  // namespace tkv
