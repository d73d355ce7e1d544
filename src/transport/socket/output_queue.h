// The output of a connection that waits until the socket takes it.

#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "transport/socket/lending.h"
#include "wire/frame_layout.h"
#include "wire/value_check.h"

namespace tkv {

// A queue of frames, and of bytes without a frame.  The latter leave between frames, before the
// waiting frames.  Frames leave only after they were made ready.
class OutputQueue {
 public:
  // Queues a frame.  A checksum of its bodies follows them if `is_checked`.
  void Add(Frame frame, bool is_checked);
  // Queues bytes of the handshake, or records.
  void AddRaw(const std::string& bytes) { raw_ += bytes; }

  bool is_empty() const { return frames_.empty() && raw_.empty(); }
  // Returns true if other bytes may leave now: no frame has left in part, and no raw bytes wait.
  bool MayInsert() const { return raw_.empty() && IsBetweenFrames(); }
  // Returns the bytes of heads and raw bytes that wait.
  size_t head_bytes() const { return head_bytes_ + raw_.size(); }
  // Returns the bytes of the bodies that wait, if more than one frame is queued.
  size_t body_bytes() const { return frames_.size() > 1 ? body_bytes_ : 0; }

  // Makes more frames ready to leave: small ones, and one large one, which is lent if possible.
  // Adds the bytes of the large one to `staged`, and if it was lent to `lent`.  Returns false if the
  // next frame has to wait until the peer gives shared memory back.
  bool PrepareSome(Lending* lending, size_t* staged, uint64_t* lent);
  void PrepareAll() { prepared_ = frames_.size(); }
  // Returns the next bytes to send, in at most kPiecesMax pieces.
  void Gather(std::vector<iovec>* pieces);
  // Notes that the first bytes were sent.
  void Sent(size_t bytes);

  // Drops the first queued frame with bodies and every frame after it.  Returns false if that frame
  // has left in part; the connection is then unusable.
  bool DropBodies();
  // Copies the bodies that are in this memory.
  void ReleaseSource(const void* data, size_t bytes);

 private:
  class Gathering;
  struct Outgoing {
    Frame frame;
    size_t sent = 0;
    size_t head_bytes = 0, body_bytes = 0;  // sizes when the frame was queued
    // The checksum of the first `checked` bytes of the bodies, if they are checked.  The trailer
    // follows the bodies.
    std::optional<ValueCheck> check;
    size_t checked = 0;
    std::array<std::byte, ValueCheck::kBytes> trailer{};
    // Returns the bytes that go through the socket; the frame has lost its body if that was lent.
    size_t bytes() const {
      return frame.head.size() + frame.body_bytes + (check ? trailer.size() : 0);
    }
  };

  bool IsBetweenFrames() const { return frames_.empty() || frames_.front().sent == 0; }
  static size_t CheckAhead(Outgoing* outgoing);
  static bool GatherFrame(Outgoing* outgoing, Gathering* gathering);
  size_t SentOfFrame(size_t bytes);
  void Dequeue(size_t count_left);

  std::string raw_;
  std::deque<Outgoing> frames_;
  size_t head_bytes_ = 0, body_bytes_ = 0;  // sums over frames_
  size_t prepared_ = 0;                     // number of the first frames that are ready to leave
};

}  // namespace tkv
