// Frames: what travels on a link, made of messages.
//
//   header (48 bytes) | entries (64 bytes for each operation) | extras, one behind the other |
//   bodies
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

// Gathers messages into frames.  May be used again after Finish, and keeps its memory.
class FrameBuilder {
 public:
  // Whether the message may join the frame that is being built.
  bool Fits(const Message& message) const;
  void Add(Message&& message);
  bool empty() const { return count_ == 0; }
  size_t count() const { return count_; }
  Frame Finish(uint64_t epoch, uint64_t low);

 private:
  std::string entries_;  // after room for the header
  std::string extras_;
  std::vector<Bytes> bodies_;
  size_t count_ = 0;
  size_t body_bytes_ = 0;
};

// Bodies are named, not filled: body.size says how many bytes follow for it, body.data is null.
//   throws  kInvalidArgument, kDataLoss (the check does not match)
void DecodeMessages(const FrameHeader& header, std::span<const std::byte> head,
                    std::vector<Message>* messages);

}  // namespace tkv
