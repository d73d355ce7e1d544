// Records of rows that are on a disk, in pages.
//
// A page is filled in memory, written, and not changed any more: of a row that is needed the record goes
// back to memory, and what the page has of it is dead.  Pages of which little is alive are moved together.
//
// A value type: copies share pages.  Threads may read the records together.

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
  //   page_bytes  of a page, at most, but for one row
  DiskPages(std::shared_ptr<RowDisk> disk, bool has_notes, size_t page_bytes)
      : disk_(std::move(disk)),
        has_notes_(has_notes),
        page_bytes_(std::min(page_bytes, kPageBytesMax)) {}

  // Places on a disk have a bit that those in memory have not.
  static bool Has(uint64_t place) noexcept { return (place & kBit) != 0; }

  size_t size() const noexcept { return rows_; }  // rows
  size_t memory_bytes() const noexcept;
  size_t disk_bytes() const noexcept;
  const std::shared_ptr<RowDisk>& disk() const noexcept { return disk_; }

  // Room for a record, which is written there at once.  The page of a row that is gone stays as it is.
  //   returns  nothing: the disk does not keep up
  //   throws   std::bad_alloc; nothing changed that can be seen
  struct Room {
    uint64_t place;
    std::byte* record;
  };
  std::optional<Room> Put(uint64_t mix, size_t stride, uint64_t rule, const RowNote* note);
  // The row is gone, or in memory.
  void Free(uint64_t place) noexcept;

  size_t StrideOf(uint64_t place) const noexcept { return pages_[PageOf(place)].stride; }
  uint64_t RuleOf(uint64_t place) const noexcept { return pages_[PageOf(place)].rule; }
  const RowNote& NoteAt(uint64_t place) const noexcept {
    return pages_[PageOf(place)].notes.as<const RowNote>()[RowOf(place)];
  }
  // A record's first bytes are read soon.
  void Prefetch(uint64_t place, size_t bytes) const noexcept;
  // A record's first bytes, as they are in memory or copied to `scratch`.
  //   blocks  while the disk reads
  //   throws  kUnavailable
  const std::byte* Read(uint64_t place, size_t bytes, std::byte* scratch) const;
  // Where a record's first bytes are, if not in memory; null: they are.
  struct Where {
    std::shared_ptr<const RowDisk::Extent> extent;
    size_t at;
    size_t bytes;
  };
  std::optional<Where> WhereIs(uint64_t place, size_t bytes) const;

  // Memory of pages that have been written is let go, and what could not be written is tried again.
  //   throws  std::bad_alloc
  void LetGo();
  // A page of which at least half is dead, where more is dead than alive in all.  Its rows stay where they
  // are until they are put elsewhere.
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
    Block memory;  // none: it has been written
    std::shared_ptr<Extent> extent;
    Block notes;
    uint64_t rule = 0;
    uint32_t stride = 0;
    uint32_t room = 0;  // for so many rows; the mixes lie behind their records
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
  std::vector<uint32_t> unused_;   // numbers of pages without rows, with room for all
  std::vector<uint32_t> written_;  // numbers of pages that are on their way
  size_t open_ = kNone;            // the page that is filled
  size_t rows_ = 0, dead_ = 0;     // of all pages
  bool is_failing_ = false;        // a write has failed, and no later one has done
  size_t next_ = 0;                // page that is looked at next
};

}  // namespace tkv
