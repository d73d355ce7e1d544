// A simulated disk for rows, in memory, whose faults are drawn from a seed.  For tests; one thread
// only.

#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/random.h"
#include "rows/row_disk.h"

namespace tkv {

class MemoryDisk final : public RowDisk, public std::enable_shared_from_this<MemoryDisk> {
 public:
  struct Faults {
    double late = 0;   // share of writes that complete only at the next write or flush
    double full = 0;   // share of writes that are refused
    double write = 0;  // share of writes that fail
    double read = 0;
  };

  explicit MemoryDisk(uint64_t seed = 0) : random_(seed) {}

  Faults faults;
  size_t reads = 0, writes = 0;

  std::shared_ptr<Extent> Write(const Block& block) override {
    Flush({});
    if (Happens(faults.full)) return nullptr;
    const auto piece = std::make_shared<Piece>(shared_from_this(), block.size);
    late_.emplace_back(piece, block);
    if (!Happens(faults.late)) Flush({});
    return piece;
  }
  void Flush(std::chrono::nanoseconds) override {
    for (const auto& [held, block] : late_) {
      const std::shared_ptr<Piece> piece = held.lock();
      if (piece == nullptr) continue;
      ++writes;
      failure_ = Happens(faults.write) ? "the disk is full" : "";
      piece->Finish(block, failure_.empty());
    }
    late_.clear();
  }
  std::string failure() const override { return failure_; }
  uint64_t bytes() const noexcept override { return bytes_; }
  size_t page_bytes_min() const noexcept override { return 0; }  // many pages of few rows

 private:
  class Piece final : public Extent {
   public:
    Piece(std::shared_ptr<MemoryDisk> disk, size_t size) : disk_(std::move(disk)), size_(size) {
      disk_->bytes_ += size;
    }
    ~Piece() override { disk_->bytes_ -= size_; }
    void Finish(const Block& block, bool is_written) {
      if (is_written) bytes_.assign(block.data, block.data + block.size);
      SetState(is_written ? State::kWritten : State::kFailed);
    }
    void Read(size_t at, size_t bytes, void* out) const override {
      ++disk_->reads;
      if (disk_->Happens(disk_->faults.read)) {
        throw Fail(Code::kUnavailable, "the disk cannot be read");
      }
      if (at + bytes > bytes_.size()) throw Fail(Code::kInternal, "nothing has been written there");
      std::copy_n(bytes_.data() + at, bytes, static_cast<std::byte*>(out));
    }
    void Prefetch(size_t, size_t) const noexcept override {}

   private:
    const std::shared_ptr<MemoryDisk> disk_;
    const size_t size_;
    std::vector<std::byte> bytes_;
  };

  bool Happens(double share) { return share > 0 && random_.Chance(share); }

  Random random_;
  std::vector<std::pair<std::weak_ptr<Piece>, Block>> late_;
  std::string failure_;
  uint64_t bytes_ = 0;
};

}  // namespace tkv
