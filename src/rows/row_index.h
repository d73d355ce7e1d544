// Where the row of a mix is: ordered hash tables, one for each part of the mixes.
//
// A segment has the mixes whose first bits are the same, ascending: each at the place that its next
// bits name or behind it, with no gap between.  So a search goes forward only, and the index is read
// in ascending order.  A full segment splits in two: pauses follow new rows, not the size of the index.
//
// A value type: copies share segments, and whoever writes a shared one copies it first.  Threads may
// read one index together.
//   source  extendible hashing, Fagin et al. 1979; ordered hash tables, Amble and Knuth 1974

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/buffer.h"

namespace tkv {

class RowIndex {
 public:
  static constexpr uint64_t kNowhere = UINT64_MAX;
  struct Entry {
    uint64_t mix;    // UINT64_MAX where there is none: a search ends there
    uint64_t place;  // kNowhere where there is none
  };
  static constexpr int kSegmentBits = 16;    // of the largest segment
  static constexpr size_t kProbesMax = 512;  // of a search, or the segment grows
  static constexpr size_t kSparseness = 64;  // entries of the directory for each segment, at most

  // All mixes are of one of so many buckets.
  explicit RowIndex(uint32_t buckets = 1);

  size_t size() const noexcept { return size_; }
  uint32_t buckets() const noexcept { return static_cast<uint32_t>(buckets_); }
  size_t memory_bytes() const noexcept;

  // Where a search begins, to be prefetched.
  const Entry* Home(uint64_t mix) const noexcept {
    const Segment& segment = segments_[SegmentOf(mix)];
    return segment.entries + segment.HomeOf(mix * buckets_);
  }
  static uint64_t FindFrom(const Entry* home, uint64_t mix) noexcept {
    while (home->mix < mix) ++home;
    return home->mix == mix ? home->place : kNowhere;
  }
  uint64_t Find(uint64_t mix) const noexcept { return FindFrom(Home(mix), mix); }

  // Where the mix is there already nothing changes.
  //   returns  the place of the mix
  //   throws   std::bad_alloc, kResourceExhausted (too many mixes that begin alike); nothing changed
  //            that can be seen
  uint64_t Insert(uint64_t mix, uint64_t place);
  // Throws only where a copy shares the segment.
  //   returns  the place of the mix, kNowhere where there was none
  //   throws   std::bad_alloc; nothing changed
  uint64_t Erase(uint64_t mix);
  // Whatever is done next to a mix that is there does not throw.
  //   throws   std::bad_alloc; nothing changed
  void MakeWritable(uint64_t mix);
  // The mix is there, in a segment that may be written.
  void Set(uint64_t mix, uint64_t place) noexcept;

  // Calls f(mix, place) in ascending order, from `first` on, while it returns true.
  template <typename F>
  void ForEach(uint64_t first, F f) const {
    const size_t begin = Rest(first) >> (63 - directory_bits_);
    for (size_t i = begin; i < directory_.size();) {
      const Segment& segment = segments_[directory_[i]];
      const size_t alike = size_t{1} << (directory_bits_ - segment.depth);
      const Entry* const end = segment.entries + segment.slots();
      const Entry* at = segment.entries;
      if (i == begin) at += segment.HomeOf(first * buckets_);  // no smaller home has it
      for (; at < end; ++at) {
        if (at->place == kNowhere || at->mix < first) continue;
        if (!f(at->mix, at->place)) return;
      }
      i = (i / alike + 1) * alike;
    }
  }

  // The mix that so many are smaller than, fewer than size().  Passes over segments, not over mixes.
  uint64_t MixAt(uint64_t number) const noexcept;

 private:
  // 2^bits homes and room behind them; the last entry stays empty, so that each search ends.
  struct Segment {
    Entry* entries = nullptr;
    Block memory;        // none: the empty segment that all begin with
    uint32_t count = 0;  // of mixes
    uint8_t depth = 0;   // first bits that are the same
    uint8_t bits = 0;

    size_t homes() const { return size_t{1} << bits; }
    size_t room() const { return homes() < kProbesMax ? homes() : kProbesMax; }
    size_t slots() const { return memory.size / sizeof(Entry); }
    size_t HomeOf(uint64_t rest) const { return ((rest << depth) >> 1) >> (63 - bits); }
  };

  // The place of a mix in its bucket, less one bit, so that all of them can be shifted away.
  uint64_t Rest(uint64_t mix) const noexcept { return (mix * buckets_) >> 1; }
  size_t SegmentOf(uint64_t mix) const noexcept {
    return directory_[Rest(mix) >> (63 - directory_bits_)];
  }
  Segment Build(const Entry* begin, const Entry* end, size_t count, int depth, int bits) const;
  Segment BuildFor(const Entry* begin, const Entry* end, size_t count, int depth,
                   int bits_max) const;
  bool Fill(const Entry* begin, const Entry* end, Segment* segment) const;
  bool TryInsert(Segment* segment, uint64_t mix, uint64_t place);
  void Grow(size_t number, uint64_t mix);
  void Split(size_t number, uint64_t mix);
  static void Own(Segment* segment);

  uint64_t buckets_;
  size_t size_ = 0;
  int directory_bits_ = 0;
  std::vector<uint32_t> directory_;  // of segments, by the first bits
  std::vector<Segment> segments_;
};

}  // namespace tkv
