// Finds the place of a row by its mix (its bit-mixed id): ordered hash tables, extended one segment
// at a time.
//
// A segment has the mixes whose first bits are equal, in ascending order.  Each mix is at the slot
// that its next bits name (its home) or behind it, with no gap between.  So a search only goes
// forward, and the whole index is read in ascending order.  A full segment splits in two: the pause
// depends on the segment, not on the size of the index.
//
// A value type: copies share segments, and a writer copies a shared segment first.  Several threads
// may read one index at once.
//   source  extendible hashing, Fagin et al. 1979; ordered hash tables, Amble and Knuth 1974

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "base/buffer.h"
#include "rows/prefetch.h"

namespace tkv {

class RowIndex {
 public:
  static constexpr uint64_t kNowhere = UINT64_MAX;
  struct Entry {
    uint64_t mix;    // UINT64_MAX if empty: every search ends here
    uint64_t place;  // kNowhere if empty
  };
  static constexpr int kSegmentBits = 16;    // homes of the largest segment, as a power of two
  static constexpr size_t kProbesMax = 512;  // steps of a search; a segment that needs more grows
  static constexpr size_t kSparseness = 64;  // most entries of the directory for each segment

  //   buckets  the ids of a key are divided into so many; all mixes here are of one
  explicit RowIndex(uint32_t buckets = 1);

  size_t size() const noexcept { return size_; }
  uint32_t buckets() const noexcept { return static_cast<uint32_t>(buckets_); }
  size_t memory_bytes() const noexcept;

  // Returns the place of a mix, or kNowhere.
  uint64_t Find(uint64_t mix) const noexcept { return FindFrom(Home(mix), mix); }
  // Finds each mix of a batch.  Meanwhile prefetches the entries of the next mixes, as many as a
  // core can wait for.
  //   found  called with a mix's place or kNowhere; may prefetch its record
  //   use    called in the order of the batch with a mix's number and the result of `found`, when
  //          the record has been prefetched
  template <typename Found, typename Use>
  void FindAll(std::span<const uint64_t> mixes, Found found, Use use) const {
    const size_t count = mixes.size();
    std::array<const Entry*, kPrefetchedRows> homes;
    std::array<std::invoke_result_t<Found&, uint64_t>, kPrefetchedRows> rows;
    for (size_t i = 0; i < count + 2 * kPrefetchedRows; ++i) {
      const size_t slot = i % kPrefetchedRows;
      if (i >= 2 * kPrefetchedRows) use(i - 2 * kPrefetchedRows, rows[slot]);
      if (i >= kPrefetchedRows && i - kPrefetchedRows < count) {
        rows[slot] = found(FindFrom(homes[slot], mixes[i - kPrefetchedRows]));
      }
      if (i < count) {
        homes[slot] = Home(mixes[i]);
        __builtin_prefetch(homes[slot]);
      }
    }
  }
  template <typename Use>
  void FindAll(std::span<const uint64_t> mixes, Use use) const {
    FindAll(mixes, [](uint64_t place) { return place; }, use);
  }

  // Adds a mix, unless the index already has it.
  //   returns  the place of the mix in the index: the given one or an earlier one
  //   throws   std::bad_alloc, kResourceExhausted (too many mixes begin alike); nothing changed
  //            that a caller can see
  uint64_t Insert(uint64_t mix, uint64_t place);
  // Removes a mix.  Throws only if a copy shares the segment.
  //   returns  the place that the mix had, or kNowhere
  //   throws   std::bad_alloc; nothing changed
  uint64_t Erase(uint64_t mix);
  // Copies the mix's segment if it is shared, so that the next Set or Erase of this mix cannot
  // throw.
  //   throws   std::bad_alloc; nothing changed
  void MakeWritable(uint64_t mix);
  // Changes the place of a mix that the index has, in a segment that is not shared.
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

  // Returns the mix that has `number` smaller ones; `number` is less than size().  Skips whole
  // segments.
  uint64_t MixAt(uint64_t number) const noexcept;

 private:
  // A hash table of 2^bits homes and some slots behind them.  The last entry stays empty, so that
  // every search ends.
  struct Segment {
    Entry* entries = nullptr;
    Block memory;        // empty: the shared entry that an index starts with
    uint32_t count = 0;  // mixes
    uint8_t depth = 0;   // first bits that all its mixes share
    uint8_t bits = 0;

    size_t homes() const { return size_t{1} << bits; }
    size_t room() const { return homes() < kProbesMax ? homes() : kProbesMax; }
    size_t slots() const { return memory.size / sizeof(Entry); }
    size_t HomeOf(uint64_t rest) const { return ((rest << depth) >> 1) >> (63 - bits); }
  };

  // Returns the position of a mix within its bucket as 63 bits, so that a shift by 63 leaves none
  // of them.
  uint64_t Rest(uint64_t mix) const noexcept { return (mix * buckets_) >> 1; }
  size_t SegmentOf(uint64_t mix) const noexcept {
    return directory_[Rest(mix) >> (63 - directory_bits_)];
  }
  // Returns the entry where a search begins.
  const Entry* Home(uint64_t mix) const noexcept {
    const Segment& segment = segments_[SegmentOf(mix)];
    return segment.entries + segment.HomeOf(mix * buckets_);
  }
  static uint64_t FindFrom(const Entry* home, uint64_t mix) noexcept {
    while (home->mix < mix) ++home;
    return home->mix == mix ? home->place : kNowhere;
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
  std::vector<uint32_t> directory_;  // numbers of segments, by the first bits of a mix
  std::vector<Segment> segments_;
};

}  // namespace tkv
