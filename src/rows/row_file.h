// A disk for rows: one file without a name, so that the system deletes it when the process ends.

#pragma once

#include <thread>

#include "rows/row_disk.h"

namespace tkv {

// A file that one thread of its own writes and any thread reads; the system's page cache is its
// cache.  Extents may outlive it: blocks that have been written by then stay readable.
class RowFile final : public RowDisk {
 public:
  static constexpr size_t kPending = size_t{64} << 20;  // most bytes that may wait to be written

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
