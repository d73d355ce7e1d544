// A disk for rows: one file without a name, so that nothing of it is left when its process ends.

#pragma once

#include <thread>

#include "rows/row_disk.h"

namespace tkv {

// Written by a thread of its own, read by those that ask; the page cache of the system is its cache.
// Extents may outlive it: what has been written by then can be read.
class RowFile final : public RowDisk {
 public:
  static constexpr size_t kPending = size_t{64} << 20;  // bytes that are on their way, at most

  //   throws  kFailedPrecondition (no file can be made in the directory), kResourceExhausted
  explicit RowFile(std::string directory);
  ~RowFile() override;
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;

  std::shared_ptr<Extent> Write(const Block& block) override;
  void Flush(std::chrono::nanoseconds patience) override;
  std::string failure() const override;
  uint64_t bytes() const noexcept override;
  size_t page_bytes_min() const noexcept override { return size_t{16} << 10; }

 private:
  class File;
  class Piece;
  const unsigned birth_;
  std::shared_ptr<File> file_;
  std::thread writer_;
};

}  // namespace tkv
