// The ids of a table that were pushed and have no row yet, by their mixes, with a note each.
//
// A value type, as RowIndex is.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rows/row_index.h"
#include "rows/row_note.h"

namespace tkv {

struct Candidate {
  uint64_t mix;
  RowNote note;
};

class Candidates {
 public:
  //   buckets  the ids of a key are divided into so many; all mixes here are of one
  explicit Candidates(uint32_t buckets) : index_(buckets) {}

  size_t size() const noexcept { return index_.size(); }
  size_t memory_bytes() const noexcept { return index_.memory_bytes(); }
  // Returns the note of a candidate, or an empty one: the id is no candidate.
  RowNote NoteOf(uint64_t mix) const noexcept {
    const uint64_t packed = index_.Find(mix);
    return packed == RowIndex::kNowhere ? RowNote{} : Unpack(packed);
  }

  // Makes the next Set of this id possible without memory.  If it is no candidate, it becomes one.
  //   returns  true  it has become one, with a count of 0
  //   throws   std::bad_alloc, as RowIndex::Insert
  bool Reserve(uint64_t mix, uint64_t version) {
    const bool is_new = index_.Find(mix) == RowIndex::kNowhere;
    if (is_new) index_.Insert(mix, Pack({version, 0}));
    index_.MakeWritable(mix);
    return is_new;
  }
  // Makes the next Erase of this id possible without memory.
  //   throws  std::bad_alloc
  void MakeWritable(uint64_t mix) { index_.MakeWritable(mix); }
  // Sets the note of a candidate that was reserved.
  void Set(uint64_t mix, const RowNote& note) noexcept { index_.Set(mix, Pack(note)); }
  // Removes an id, which need not be a candidate.
  //   throws  std::bad_alloc  a copy shares its segment; nothing changed
  void Erase(uint64_t mix) { index_.Erase(mix); }

  // Calls f(mix, note) in ascending order of mixes, from `first` on, while it returns true.
  template <typename F>
  void ForEach(uint64_t first, F f) const {
    index_.ForEach(first, [&](uint64_t mix, uint64_t packed) { return f(mix, Unpack(packed)); });
  }
  // Returns at most `count_max` candidates, ascending, from the one with that number on.
  std::vector<Candidate> From(uint64_t number, size_t count_max) const;
  // Adds a candidate, or sets its note.
  //   throws  kInvalidArgument (a count or a version that a candidate cannot have), std::bad_alloc
  //           and as RowIndex::Insert; nothing changed
  void Put(const Candidate& candidate);

 private:
  static constexpr uint64_t kVersionMask = (uint64_t{1} << kVersionBits) - 1;
  // Only a damaged snapshot has a version of more bits.  The mask keeps such a version out of the
  // count.
  static uint64_t Pack(const RowNote& note) {
    return note.count << kVersionBits | (note.version & kVersionMask);
  }
  static RowNote Unpack(uint64_t packed) { return {packed & kVersionMask, packed >> kVersionBits}; }

  RowIndex index_;  // with packed notes instead of places
};

}  // namespace tkv
