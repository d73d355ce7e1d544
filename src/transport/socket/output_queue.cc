#include "transport/socket/output_queue.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "transport/socket/memory_pieces.h"

namespace tkv {
namespace {

// The most bytes that one call hands to the kernel.  Large bodies are cut, so that other
// connections are not delayed and the kernel's own buffers do not grow.
constexpr size_t kWriteBytesMax = size_t{4} << 20;

}  // namespace

void OutputQueue::Add(Frame frame, bool is_checked) {
  const size_t head_bytes = frame.head.size(), body_bytes = frame.body_bytes;
  if (is_checked) AnnounceBodyCheck(&frame);
  frames_.push_back({std::move(frame), 0, head_bytes, body_bytes});
  if (is_checked) frames_.back().check.emplace();
  head_bytes_ += head_bytes;
  body_bytes_ += body_bytes;
}

// Drops the newest frames.
void OutputQueue::Dequeue(size_t count_left) {
  for (; frames_.size() > count_left; frames_.pop_back()) {
    head_bytes_ -= frames_.back().head_bytes;
    body_bytes_ -= frames_.back().body_bytes;
  }
  prepared_ = std::min(prepared_, count_left);
}

bool OutputQueue::PrepareSome(Lending* lending, size_t* staged, uint64_t* lent) {
  while (prepared_ < frames_.size()) {
    Frame& frame = frames_[prepared_].frame;
    const size_t bytes = frame.body_bytes;
    const bool is_large = bytes >= kCoalesceBelowBytes;
    const Lending::Offer offer = is_large ? lending->Lend(&frame) : Lending::Offer::kInline;
    if (offer == Lending::Offer::kFull) return false;
    if (offer == Lending::Offer::kLent) *lent += bytes;
    ++prepared_;
    if (!is_large) continue;
    *staged += bytes;
    break;
  }
  return true;
}

// Adds the next piece of a frame's bodies to its checksum, just before the piece leaves.  So the
// piece is loaded into the cache only once.  Returns how many bytes of the frame may leave.
size_t OutputQueue::CheckAhead(Outgoing* outgoing) {
  if (!outgoing->check) return outgoing->bytes();
  const size_t bodies_sent = outgoing->sent - std::min(outgoing->sent, outgoing->head_bytes);
  const size_t end = std::min(outgoing->body_bytes, bodies_sent + ValueCheck::kPieceBytes);
  size_t begin = 0;  // position of a body among the bodies
  for (const Bytes& body : outgoing->frame.bodies) {
    const size_t from = std::max(outgoing->checked, begin), to = std::min(end, begin + body.size);
    if (from < to) outgoing->check->Add(body.data + (from - begin), to - from);
    begin += body.size;
  }
  outgoing->checked = std::max(outgoing->checked, end);
  if (outgoing->checked < outgoing->body_bytes) return outgoing->head_bytes + outgoing->checked;
  const uint64_t value = outgoing->check->value();
  std::memcpy(outgoing->trailer.data(), &value, sizeof(value));
  return outgoing->bytes();
}

void OutputQueue::Gather(std::vector<iovec>* pieces) {
  size_t total = 0;
  const auto add = [&](const void* data, size_t bytes) {
    if (bytes == 0) return true;
    bytes = std::min(bytes, kWriteBytesMax - total);
    AddPiece(pieces, data, bytes);
    total += bytes;
    return total < kWriteBytesMax && pieces->size() < kPiecesMax;
  };
  const auto add_frame = [&](Outgoing& outgoing) {
    size_t skip = outgoing.sent;
    size_t left = CheckAhead(&outgoing) - skip;
    const auto add_rest = [&](const void* data, size_t bytes) {
      const size_t skipped = std::min(skip, bytes);
      skip -= skipped;
      const size_t part = std::min(bytes - skipped, left);
      left -= part;
      return add(static_cast<const std::byte*>(data) + skipped, part) && part == bytes - skipped;
    };
    if (!add_rest(outgoing.frame.head.data(), outgoing.frame.head.size())) return false;
    for (const Bytes& body : outgoing.frame.bodies) {
      if (!add_rest(body.data, body.size)) return false;
    }
    return !outgoing.check || add_rest(outgoing.trailer.data(), outgoing.trailer.size());
  };
  size_t next = 0;
  if (!IsBetweenFrames() && !add_frame(frames_[next++])) return;
  if (!add(raw_.data(), raw_.size())) return;
  while (next < prepared_) {
    if (!add_frame(frames_[next++])) return;
  }
}

void OutputQueue::Sent(size_t bytes) {
  if (!IsBetweenFrames()) bytes -= SentOfFrame(bytes);
  const size_t raw = std::min(bytes, raw_.size());
  raw_.erase(0, raw);
  bytes -= raw;
  while (bytes > 0) bytes -= SentOfFrame(bytes);
}

// Notes that some of the bytes were of the first frame.  Returns how many.
size_t OutputQueue::SentOfFrame(size_t bytes) {
  Outgoing& outgoing = frames_.front();
  const size_t sent = std::min(bytes, outgoing.bytes() - outgoing.sent);
  outgoing.sent += sent;
  if (outgoing.sent < outgoing.bytes()) return sent;
  head_bytes_ -= outgoing.head_bytes;
  body_bytes_ -= outgoing.body_bytes;
  frames_.pop_front();
  --prepared_;
  return sent;
}

bool OutputQueue::DropBodies() {
  for (size_t i = 0; i < frames_.size(); ++i) {
    if (frames_[i].frame.bodies.empty()) continue;
    const bool is_cut = frames_[i].sent > 0;
    Dequeue(i);
    return !is_cut;
  }
  return true;
}

void OutputQueue::ReleaseSource(const void* data, size_t bytes) {
  for (Outgoing& outgoing : frames_) {
    for (Bytes& body : outgoing.frame.bodies) {
      if (!IsInside(body.data, data, bytes)) continue;
      const auto copy = std::make_shared<std::vector<std::byte>>(body.data, body.data + body.size);
      body = {copy->data(), body.size, copy};
    }
  }
}

}  // namespace tkv
