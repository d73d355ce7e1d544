#include "rows/row_index.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/format.h"
#include "rows/row_memory.h"

namespace tkv {
namespace {

using Entry = RowIndex::Entry;

constexpr Entry kNone{UINT64_MAX, RowIndex::kNowhere};
constexpr int kSmallestBits = 6;

// Never written: a segment without memory grows before its first mix.
Entry empty_entry = kNone;

}  // namespace

RowIndex::RowIndex(uint32_t buckets) : buckets_(buckets), directory_(1), segments_(1) {
  segments_[0].entries = &empty_entry;
}

size_t RowIndex::memory_bytes() const noexcept {
  size_t bytes = directory_.capacity() * sizeof(uint32_t) + segments_.capacity() * sizeof(Segment);
  for (const Segment& segment : segments_) bytes += segment.memory.size;
  return bytes;
}

// Returns false if a mix would be too far from its home.
bool RowIndex::Fill(const Entry* begin, const Entry* end, Segment* segment) const {
  size_t next = 0;
  for (const Entry* from = begin; from < end; ++from) {
    if (from->place == kNowhere) continue;
    const size_t home = segment->HomeOf(from->mix * buckets_);
    next = std::max(next, home);
    if (next - home >= segment->room()) return false;
    segment->entries[next++] = *from;
  }
  return true;
}

RowIndex::Segment RowIndex::Build(const Entry* begin, const Entry* end, size_t count, int depth,
                                  int bits) const {
  Segment segment;
  segment.depth = static_cast<uint8_t>(depth);
  segment.bits = static_cast<uint8_t>(bits);
  segment.count = static_cast<uint32_t>(count);
  const size_t slots = segment.homes() + segment.room() + 1;
  segment.memory = NewRowMemory(slots * sizeof(Entry));
  segment.entries = segment.memory.as<Entry>();
  std::fill_n(segment.entries, slots, kNone);
  if (!Fill(begin, end, &segment)) segment.entries = nullptr;
  return segment;
}

// Returns the smallest segment that has the mixes and room to grow.
RowIndex::Segment RowIndex::BuildFor(const Entry* begin, const Entry* end, size_t count, int depth,
                                     int bits_max) const {
  int bits = std::clamp(static_cast<int>(std::bit_width(count * 5 / 2)), kSmallestBits, bits_max);
  for (; bits <= bits_max; ++bits) {
    Segment segment = Build(begin, end, count, depth, bits);
    if (segment.entries != nullptr) return segment;
  }
  throw Fail(Code::kResourceExhausted, "too many ids that are mixed alike");
}

void RowIndex::Own(Segment* segment) {
  if (!segment->memory || segment->memory.unique()) return;
  const Block copy = NewRowMemory(segment->memory.size);
  std::memcpy(copy.data, segment->memory.data, copy.size);
  segment->entries = copy.as<Entry>();
  segment->memory = copy;
}

bool RowIndex::TryInsert(Segment* segment, uint64_t mix, uint64_t place) {
  if ((uint64_t{segment->count} + 1) * 5 > segment->homes() * 4) return false;
  const size_t home = segment->HomeOf(mix * buckets_);
  const size_t end = home + segment->room();  // at most the last entry, which stays empty
  size_t at = home;
  while (at < end && segment->entries[at].mix < mix) ++at;
  size_t free = at;
  while (free < end && segment->entries[free].place != kNowhere) ++free;
  if (free == end) return false;
  Own(segment);
  Entry* const entries = segment->entries;
  std::copy_backward(entries + at, entries + free, entries + free + 1);
  entries[at] = {mix, place};
  ++segment->count;
  return true;
}

uint64_t RowIndex::Insert(uint64_t mix, uint64_t place) {
  const uint64_t found = Find(mix);
  if (found != kNowhere) return found;
  for (;;) {
    const size_t number = SegmentOf(mix);
    if (TryInsert(&segments_[number], mix, place)) break;
    Grow(number, mix);
  }
  ++size_;
  return place;
}

void RowIndex::Grow(size_t number, uint64_t mix) {
  Segment& segment = segments_[number];
  if (segment.bits == kSegmentBits) return Split(number, mix);
  const int bits = segment.memory ? segment.bits + 1 : kSmallestBits;
  for (int wider = bits; wider <= kSegmentBits; ++wider) {
    Segment grown = Build(segment.entries, segment.entries + segment.slots(), segment.count,
                          segment.depth, wider);
    if (grown.entries == nullptr) continue;
    segment = std::move(grown);
    return;
  }
  Split(number, mix);
}

// Moves the upper half of a segment's mixes to a new segment.
void RowIndex::Split(size_t number, uint64_t mix) {
  const Segment& full = segments_[number];
  const int depth = full.depth + 1;
  const bool doubles = depth > directory_bits_;
  if (doubles && directory_.size() * 2 > kSparseness * (segments_.size() + 1)) {
    throw Fail(Code::kResourceExhausted, "too many ids that are mixed alike");
  }
  const Entry* const end = full.entries + full.slots();
  size_t lower = 0;
  const Entry* middle = full.entries;
  for (const Entry* at = full.entries; at < end; ++at) {
    if (at->place == kNowhere) continue;
    if ((((at->mix * buckets_) << full.depth) >> 63) != 0) break;
    middle = at + 1;
    ++lower;
  }
  Segment low = BuildFor(full.entries, middle, lower, depth, kSegmentBits);
  Segment high = BuildFor(middle, end, full.count - lower, depth, kSegmentBits);
  if (segments_.size() == segments_.capacity()) segments_.reserve(2 * segments_.size());
  if (doubles) {
    std::vector<uint32_t> wider(directory_.size() * 2);
    for (size_t i = 0; i < wider.size(); ++i) wider[i] = directory_[i / 2];
    directory_ = std::move(wider);
    ++directory_bits_;
  }
  // Nothing below throws.
  const size_t alike = size_t{1} << (directory_bits_ - depth);
  const size_t first = (Rest(mix) >> (63 - directory_bits_)) / (2 * alike) * (2 * alike);
  std::fill_n(directory_.begin() + static_cast<ptrdiff_t>(first + alike), alike,
              static_cast<uint32_t>(segments_.size()));
  segments_[number] = std::move(low);
  segments_.push_back(std::move(high));
}

uint64_t RowIndex::Erase(uint64_t mix) {
  Segment& segment = segments_[SegmentOf(mix)];
  size_t at = segment.HomeOf(mix * buckets_);
  while (segment.entries[at].mix < mix) ++at;
  const uint64_t place = segment.entries[at].mix == mix ? segment.entries[at].place : kNowhere;
  if (place == kNowhere) return place;
  Own(&segment);
  Entry* const entries = segment.entries;
  // The following entries that are not at their homes move one slot forward, towards them.
  for (; entries[at + 1].place != kNowhere; ++at) {
    if (segment.HomeOf(entries[at + 1].mix * buckets_) > at) break;
    entries[at] = entries[at + 1];
  }
  entries[at] = kNone;
  --segment.count;
  --size_;
  return place;
}

void RowIndex::MakeWritable(uint64_t mix) { Own(&segments_[SegmentOf(mix)]); }

void RowIndex::Set(uint64_t mix, uint64_t place) noexcept {
  const Segment& segment = segments_[SegmentOf(mix)];
  Entry* at = segment.entries + segment.HomeOf(mix * buckets_);
  while (at->mix < mix) ++at;
  at->place = place;
}

uint64_t RowIndex::MixAt(uint64_t number) const noexcept {
  for (size_t i = 0; i < directory_.size();) {
    const Segment& segment = segments_[directory_[i]];
    if (number < segment.count) {
      const Entry* at = segment.entries;
      for (;; ++at) {
        if (at->place != kNowhere && number-- == 0) return at->mix;
      }
    }
    number -= segment.count;
    const size_t alike = size_t{1} << (directory_bits_ - segment.depth);
    i = (i / alike + 1) * alike;
  }
  return UINT64_MAX;
}

}  // namespace tkv
