// Frames: what travels on a link.
//
//   header (48 bytes) | entries (64 bytes for each operation) | extras, one behind the other |
//   bodies
//
// Header, entries and extras are the *head*; it is checked as a whole before anything in it is
// used.  Bodies follow in the order of the operations.  The decoder trusts nothing: sizes are
// bounded before memory is taken, and a frame that breaks a rule is an Error that closes its link.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "wire/message.h"

namespace tkv {

inline constexpr uint32_t kFrameMagic = 0x31564B54;  // "TKV1"
inline constexpr uint8_t kFrameVersion = 1;

struct FrameHeader {  // wire layout
  uint32_t magic = kFrameMagic;
  uint8_t version = kFrameVersion;
  uint8_t reserved0 = 0;
  uint16_t reserved1 = 0;
  uint64_t epoch = 0;  // of the sender
  uint64_t low = 0;    // every mutating operation below it has been answered to this client
  uint64_t body_bytes = 0;
  uint32_t meta_bytes = 0;  // entries and extras
  uint32_t entry_count = 0;
  uint32_t body_check = 0;  // of the bodies, where the sender adds one; 0: none
  uint32_t check = 0;       // low half of XXH3-64 over the head with this field zero
};
static_assert(sizeof(FrameHeader) == 48);

struct FrameEntry {  // wire layout
  uint8_t type;
  uint8_t flags;
  uint8_t dtype;
  uint8_t codec;
  uint32_t chunk;
  uint64_t key_low;
  uint64_t key_high;
  uint64_t number;
  uint64_t seq;
  uint64_t need;
  uint64_t body_bytes;
  uint32_t extra_bytes;
  uint32_t reserved;
};
static_assert(sizeof(FrameEntry) == 64);

// What a decoder accepts from a peer.
struct FrameLimits {
  size_t meta_bytes_max = size_t{64} << 20;
  size_t body_bytes_max = size_t{1} << 40;  // each body is bounded again by who takes it

  // Before the peer has proved who it is.
  static FrameLimits Unproved() { return {4096 - sizeof(FrameHeader), 0}; }
};

// Operations smaller than this share frames; larger ones travel alone.
inline constexpr size_t kCoalesceBelowBytes = size_t{64} << 10;
inline constexpr size_t kFrameBytesMax = size_t{1} << 20;

// A frame on its way out.  Bodies are references to the memory of their owners.
struct Frame {
  std::string head;
  std::vector<Bytes> bodies;
  size_t body_bytes = 0;
};

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

// Writes the check of a head; Finish has done it already.
void Seal(std::string* head);
// Low half of XXH3-64 over the bodies, one behind the other; never 0.
uint32_t CheckOfBodies(std::span<const std::span<const std::byte>> bodies);
// Adds it to a frame that is made.
void AddBodyCheck(Frame* frame);

//   throws  kInvalidArgument  not a frame, another version, or above the limits
FrameHeader DecodeHeader(std::span<const std::byte> bytes, const FrameLimits& limits);

// Bodies are named, not filled: body.size says how many bytes follow for it, body.data is null.
//   throws  kInvalidArgument, kDataLoss (the check does not match)
void DecodeMessages(const FrameHeader& header, std::span<const std::byte> head,
                    std::vector<Message>* messages);

}  // namespace tkv
