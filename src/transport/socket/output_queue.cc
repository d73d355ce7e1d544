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

// The pieces of memory for one write, up to its bounds.
class OutputQueue::Gathering {
 public:
  explicit Gathering(std::vector<iovec>* pieces) : pieces_(pieces) {}

  // Starts a run of bytes: the first `sent` have left, and the first `ready` may leave.
  void Start(size_t sent, size_t ready) {
    skip_ = sent;
    left_ = ready - sent;
  }
  // Adds the next bytes of the run.  Returns false if nothing may follow them: the write is full, or
  // some of them may not leave yet.
  bool Add(const void* data, size_t bytes) {
    const size_t skipped = std::min(skip_, bytes);
    skip_ -= skipped;
    const size_t part = std::min(bytes - skipped, left_);
    left_ -= part;
    return AddPart(static_cast<const std::byte*>(data) + skipped, part) && part == bytes - skipped;
  }

 private:
  bool AddPart(const std::byte* data, size_t bytes) {
    if (bytes == 0) return true;
    bytes = std::min(bytes, kWriteBytesMax - total_);
    AddPiece(pieces_, data, bytes);
    total_ += bytes;
    return total_ < kWriteBytesMax && pieces_->size() < kPiecesMax;
  }

  std::vector<iovec>* const pieces_;
  size_t total_ = 0;            // bytes of the pieces
  size_t skip_ = 0, left_ = 0;  // bytes of the run that have left, and that may leave after them
};

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

// Adds the bytes of a frame that may leave.  Returns false if nothing may follow them in this write.
bool OutputQueue::GatherFrame(Outgoing* outgoing, Gathering* gathering) {
  gathering->Start(outgoing->sent, CheckAhead(outgoing));
  const Frame& frame = outgoing->frame;
  if (!gathering->Add(frame.head.data(), frame.head.size())) return false;
  for (const Bytes& body : frame.bodies) {
    if (!gathering->Add(body.data, body.size)) return false;
  }
  return !outgoing->check || gathering->Add(outgoing->trailer.data(), outgoing->trailer.size());
}

void OutputQueue::Gather(std::vector<iovec>* pieces) {
  Gathering gathering(pieces);
  size_t next = 0;
  if (!IsBetweenFrames() && !GatherFrame(&frames_[next++], &gathering)) return;
  gathering.Start(0, raw_.size());
  if (!gathering.Add(raw_.data(), raw_.size())) return;
  while (next < prepared_) {
    if (!GatherFrame(&frames_[next++], &gathering)) return;
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
