// Keeps records of rows on a disk, in pages.
//
// A page is filled in memory, written once, and never changed afterwards.  A row that is needed
// again returns to memory, and its copy in the page is dead.  Pages with few live rows are
// compacted: their live rows move to a new page.
//
// A value type: copies share pages.  Several threads may read the records at once.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "rows/row_disk.h"
#include "rows/row_note.h"

namespace tkv {

class DiskPages {
 public:
  //   page_bytes  the most that a page has, unless a single row is larger
  DiskPages(std::shared_ptr<RowDisk> disk, bool has_notes, size_t page_bytes)
      : disk_(std::move(disk)),
        has_notes_(has_notes),
        page_bytes_(std::min(page_bytes, kPageBytesMax)) {}

  // Returns true if the place is on the disk: such places have a bit that places in memory lack.
  static bool Has(uint64_t place) noexcept { return (place & kBit) != 0; }

  size_t size() const noexcept { return rows_; }  // rows that are alive
  bool has_notes() const noexcept { return has_notes_; }
  size_t memory_bytes() const noexcept;
  size_t disk_bytes() const noexcept;
  const std::shared_ptr<RowDisk>& disk() const noexcept { return disk_; }

  // Reserves room for a record in the open page.  The caller writes the record before the next
  // call.  The page of an earlier copy of the row does not change.
  //   returns  nothing if the disk does not keep up
  //   throws   std::bad_alloc; nothing changed that a caller can see
  struct Room {
    uint64_t place;
    std::byte* record;
  };
  std::optional<Room> Put(uint64_t mix, size_t stride, uint64_t rule, const RowNote* note);
  // Marks a record as dead, since its row was removed or is in memory again.
  void Free(uint64_t place) noexcept;

  size_t StrideOf(uint64_t place) const noexcept { return pages_[PageOf(place)].stride; }
  uint64_t RuleOf(uint64_t place) const noexcept { return pages_[PageOf(place)].rule; }
  const RowNote& NoteAt(uint64_t place) const noexcept {
    return pages_[PageOf(place)].notes.as<const RowNote>()[RowOf(place)];
  }
  // Starts to read a record's first bytes from the disk, for a Read that follows soon.
  void Prefetch(uint64_t place, size_t bytes) const noexcept;
  // Returns a record's first bytes: a pointer to them if they are in memory, otherwise a copy in
  // `scratch`.
  //   blocks  while the disk reads
  //   throws  kUnavailable
  const std::byte* Read(uint64_t place, size_t bytes, std::byte* scratch) const;
  // Returns the range on the disk of a record's first bytes, or nothing if they are in memory.
  std::optional<DiskRange> RangeOf(uint64_t place, size_t bytes) const;

  // Frees the memory of pages that have been written, and retries failed writes.
  //   throws  std::bad_alloc
  void FreeWritten();
  // Returns a page to be compacted: the one with the smallest share of live rows among up to 256
  // pages of which at least half is dead.  Returns nothing if there is none, or if no more rows are
  // dead than alive in all pages.  The rows keep their places until the caller moves them with Put
  // and Free.
  //   blocks   while the disk reads
  //   throws   kUnavailable, std::bad_alloc
  struct Whole {
    Block memory;
    size_t stride;
    uint64_t rule;
    std::span<const uint64_t> mixes;
    uint64_t first;  // place of the first row; the others follow
  };
  std::optional<Whole> TakeWorst();

 private:
  static constexpr uint64_t kBit = uint64_t{1} << 62;
  static constexpr size_t kPageBytesMin = size_t{16} << 10;
  static constexpr size_t kPageBytesMax = size_t{1} << 20;
  static constexpr size_t kNone = SIZE_MAX;
  using Extent = RowDisk::Extent;
  struct Page {
    Block memory;  // empty after the page has been written
    std::shared_ptr<Extent> extent;
    Block notes;
    uint64_t rule = 0;
    uint32_t stride = 0;
    uint32_t room = 0;  // capacity in rows; the mixes follow the records
    uint32_t rows = 0;
    uint32_t alive = 0;
  };

  static size_t PageOf(uint64_t place) { return (place & ~kBit) >> 32; }
  static uint32_t RowOf(uint64_t place) { return static_cast<uint32_t>(place); }
  static uint64_t* MixesOf(const Page& page, std::byte* memory) {
    return reinterpret_cast<uint64_t*>(memory + size_t{page.stride} * page.room);
  }
  bool Seal();
  void Shorten(Page* page) const;
  void Open(size_t stride, uint64_t rule);
  void Drop(size_t number) noexcept;

  std::shared_ptr<RowDisk> disk_;
  bool has_notes_;
  size_t page_bytes_;
  std::vector<Page> pages_;
  std::vector<uint32_t> unused_;   // numbers of pages without rows; has capacity for all pages
  std::vector<uint32_t> written_;  // numbers of pages that are being written
  size_t open_ = kNone;            // the page that is being filled
  size_t rows_ = 0, dead_ = 0;     // alive and dead rows of all pages
  bool is_failing_ = false;        // a write has failed, and none has succeeded since
  size_t next_ = 0;                // the page that TakeWorst examines next
};

}  // namespace tkv
