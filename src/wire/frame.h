// Frames: the unit that travels on a link.  A frame contains one or more messages.
//
//   header (48 bytes) | entries (64 bytes for each operation) | extras, concatenated | bodies
//
// Header, entries and extras are the *head*; it is checked as a whole before anything in it is
// used.  Bodies follow in the order of the operations.  The decoder trusts nothing: sizes are
// bounded before memory is taken, and a frame that breaks a rule is an Error that closes its link.

#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "wire/frame_layout.h"
#include "wire/message.h"

namespace tkv {

// A builder of frames from messages.  A builder can be used again
// after Finish and keeps its memory.
class FrameBuilder {
 public:
  // Returns true if the message may join the current frame.  An empty frame accepts any message.
  bool Fits(const Message& message) const;
  void Add(Message&& message);
  bool empty() const { return count_ == 0; }
  size_t count() const { return count_; }
  // Returns the frame and starts an empty one.
  Frame Finish(uint64_t epoch, uint64_t low);

 private:
  std::string entries_;  // begins with space for the header
  std::string extras_;
  std::vector<Bytes> bodies_;
  size_t count_ = 0;
  size_t body_bytes_ = 0;
};

// Decodes the messages of a frame's head.  Bodies are not filled: body.size is the number of bytes
// that follow, body.data is null.
//   throws  kInvalidArgument, kDataLoss (the check does not match)
void DecodeMessages(const FrameHeader& header, std::span<const std::byte> head,
                    std::vector<Message>* messages);

}  // namespace tkv
