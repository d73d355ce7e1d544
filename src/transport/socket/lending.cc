#include "transport/socket/lending.h"

#include <unistd.h>

#include <cstring>
#include <utility>

#include "base/format.h"

namespace tkv {
namespace {

// Limit of bytes copied into the arena and not given back yet.  The limit is small so that the
// bytes are still in the cache when the peer reads them.  A single body may be larger.
constexpr size_t kStagedBytesMax = size_t{4} << 20;

constexpr uint64_t kAlignment = 64;  // of arrays that compute kernels read

std::string ToBytes(const LendRecord& record) {
  return {reinterpret_cast<const char*>(&record), sizeof(record)};
}

}  // namespace

Lending::~Lending() {
  if (file_ >= 0) close(file_);
}

// Copies a body into the arena, and replaces it by the copy.  Returns kLent, or why there is no copy.
Lending::Offer Lending::Stage(Lent* lent) {
  const size_t bytes = lent->body.size;
  if (staged_ > 0 && staged_ + bytes > kStagedBytesMax) return Offer::kFull;
  const Block block = arena_->Allocate(bytes);
  if (!block) {
    warn_(
        Format("shared memory: the system has no {} bytes left; large values go through the "
               "socket",
               bytes));
    return Offer::kInline;
  }
  std::memcpy(block.data, lent->body.data, bytes);
  lent->body = block.bytes();
  lent->staged = bytes;
  return Offer::kLent;
}

Lending::Offer Lending::Lend(Frame* frame) {
  if (arena_ == nullptr || frame->bodies.size() != 1 || frame->body_bytes < kCoalesceBelowBytes ||
      frame->body_bytes > Arena::kBlockBytesMax) {
    return Offer::kInline;
  }
  if (!is_mapped_) {
    wants_file_ = true;
    return Offer::kInline;
  }
  Lent lent;
  lent.body = std::move(frame->bodies[0]);
  const auto not_lent = [&](Offer offer) {
    frame->bodies[0] = std::move(lent.body);
    return offer;
  };
  // A value in the arena that is sent to several peers is lent to each of them without a copy.
  if (!arena_->Contains(lent.body.data)) {
    if (const Offer offer = Stage(&lent); offer != Offer::kLent) return not_lent(offer);
  }
  LendRecord record;
  record.kind = LendRecord::Kind::kBody;
  record.offset = arena_->OffsetOf(lent.body.data);
  record.bytes = lent.body.size;
  // The same version may be pulled twice over one connection.
  if (lent_.contains(record.offset)) return not_lent(Offer::kInline);
  staged_ += lent.staged;
  lent_bytes_ += lent.body.size;
  lent_.emplace(record.offset, std::move(lent));
  frame->head.insert(0, ToBytes(record));
  frame->bodies.clear();
  frame->body_bytes = 0;
  return Offer::kLent;
}

int Lending::TakeFile(LendRecord* record) {
  if (!wants_file_ || has_sent_file_) return -1;
  has_sent_file_ = true;
  record->kind = LendRecord::Kind::kFile;
  return arena_->reader_file();
}

void Lending::TakeFrom(int file) {
  if (file_ >= 0 || has_had_file_) {
    close(file);
    throw Fail(Code::kInvalidArgument, "shared memory: a second file");
  }
  file_ = file;
}

void Lending::LoseFile() {
  if (std::exchange(has_had_file_, true)) {
    throw Fail(Code::kInvalidArgument, "shared memory: a second file");
  }
  is_file_lost_ = true;
}

void Lending::Receive(const LendRecord& record) {
  switch (record.kind) {
    case LendRecord::Kind::kFile: {
      if (std::exchange(is_file_lost_, false)) {
        warn_("shared memory: Too many open files; large values come through the socket");
        return;
      }
      if (file_ < 0) {
        throw Fail(Code::kInvalidArgument, "shared memory: the record of a file comes without it");
      }
      has_had_file_ = true;
      std::string why;
      view_ = ArenaView::Map(std::exchange(file_, -1), &why);
      if (view_ == nullptr) {
        warn_(Format("shared memory: {}; large values come through the socket", why));
        return;
      }
      LendRecord mapped;
      mapped.kind = LendRecord::Kind::kMapped;
      answers_ += ToBytes(mapped);
      return;
    }
    case LendRecord::Kind::kMapped:
      if (!has_sent_file_) break;
      is_mapped_ = true;
      return;
    case LendRecord::Kind::kBody:
      if (view_ == nullptr || body_) break;
      body_ = record;
      return;
    case LendRecord::Kind::kFree: {
      const auto found = lent_.find(record.offset);
      if (found == lent_.end()) break;
      staged_ -= found->second.staged;
      lent_bytes_ -= found->second.body.size;
      lent_.erase(found);
      ++given_back_;
      return;
    }
  }
  throw Fail(Code::kInvalidArgument, "shared memory: a record of kind {} that cannot be here",
             static_cast<int>(record.kind));
}

const std::byte* Lending::Body(uint64_t bytes) const {
  if (bytes != body_->bytes) {
    throw Fail(Code::kInvalidArgument, "shared memory: {} bytes are lent to a frame of {}",
               body_->bytes, bytes);
  }
  if (body_->offset % kAlignment != 0) {
    throw Fail(Code::kInvalidArgument, "shared memory: a body at {}, a multiple of {} is needed",
               body_->offset, kAlignment);
  }
  return view_->At(body_->offset, body_->bytes);
}

void Lending::Taken() {
  LendRecord free;
  free.kind = LendRecord::Kind::kFree;
  free.offset = body_->offset;
  body_.reset();
  answers_ += ToBytes(free);
}

}  // namespace tkv
