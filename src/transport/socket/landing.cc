#include "transport/socket/landing.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/format.h"
#include "transport/socket/memory_pieces.h"

namespace tkv {

void Landing::Start(std::vector<Block> blocks, bool is_checked) {
  blocks_ = std::move(blocks);
  block_ = 0;
  offset_ = 0;
  is_active_ = true;
  is_checked_ = is_checked;
  if (is_checked_ && check_) check_->Restart();
  if (is_checked_ && !check_) check_.emplace();
}

void Landing::Copy(const std::byte* lent) {
  if (blocks_.size() != 1) {
    throw Fail(Code::kInvalidArgument, "shared memory: a frame of {} bodies, one is lent",
               blocks_.size());
  }
  if (blocks_[0]) std::memcpy(blocks_[0].data, lent, blocks_[0].size);
  block_ = 1;
}

void Landing::Finish() {
  is_active_ = false;
  blocks_.clear();
}

size_t Landing::bytes_left() const {
  size_t left = 0;
  for (size_t i = block_; i < blocks_.size(); ++i) left += blocks_[i].size;
  return left - offset_;
}

size_t Landing::AddPieces(std::vector<iovec>* pieces, std::vector<std::byte>* scratch) const {
  size_t added = 0, offset = offset_;
  for (size_t i = block_; i < blocks_.size() && pieces->size() < kPiecesMax; ++i) {
    const Block& block = blocks_[i];
    const bool thrown_away = !block;
    const size_t rest = block.size - offset;
    const size_t most = thrown_away ? scratch->size() : rest;
    const size_t part =
        std::min({rest, most, is_checked_ ? ValueCheck::kPieceBytes - added : rest});
    AddPiece(pieces, thrown_away ? scratch->data() : block.data + offset, part);
    added += part;
    offset = 0;
    // Scratch memory can be added to the checksum only until the next piece overwrites it.
    if (part < rest || (thrown_away && is_checked_)) break;
  }
  return added;
}

void Landing::NoteRead(const std::vector<iovec>& pieces, size_t bytes) {
  for (const iovec& piece : pieces) {
    const size_t part = std::min(bytes, piece.iov_len);
    if (is_checked_ && part > 0) check_->Add(piece.iov_base, part);
    bytes -= part;
    Advance(part);
  }
}

// Moves the position of the next byte.
void Landing::Advance(size_t bytes) {
  while (bytes > 0) {
    const size_t step = std::min(bytes, blocks_[block_].size - offset_);
    bytes -= step;
    offset_ += step;
    if (offset_ < blocks_[block_].size) return;
    ++block_;
    offset_ = 0;
  }
}

size_t Landing::Fill(const std::byte* data, size_t bytes) {
  size_t used = 0;
  while (block_ < blocks_.size()) {
    const Block& block = blocks_[block_];
    const size_t part = std::min(bytes - used, block.size - offset_);
    if (block && part > 0) std::memcpy(block.data + offset_, data + used, part);
    if (is_checked_) check_->Add(data + used, part);
    used += part;
    offset_ += part;
    if (offset_ < block.size) break;
    ++block_;
    offset_ = 0;
  }
  return used;
}

void Landing::Check(uint64_t value) {
  is_checked_ = false;
  if (value == check_->value()) return;
  throw Fail(Code::kDataLoss, "a frame of {} bodies: the check does not match", blocks_.size());
}

void Landing::ReleaseTarget(const void* data, size_t bytes) {
  if (!is_active_) return;
  for (size_t i = block_; i < blocks_.size(); ++i) {
    if (IsInside(blocks_[i].data, data, bytes)) blocks_[i] = {nullptr, blocks_[i].size, nullptr};
  }
}

}  // namespace tkv
