// The layout of frames: all that a transport has to know of them.  What the operations in a frame
// say is frame.h's and message.h's.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"

namespace tkv {

inline constexpr uint32_t kFrameMagic = 0x31564B54;  // "TKV1"
// Of this layout.  What operations mean is the protocol's version (version.h); a peer of another one
// can still read that it is refused.
inline constexpr uint8_t kFrameVersion = 1;

enum FrameFlag : uint8_t {
  kChecksBodies = 1  // the bodies are followed by their ValueCheck (value_check.h)
};

struct FrameHeader {  // wire layout
  uint32_t magic = kFrameMagic;
  uint8_t version = kFrameVersion;
  uint8_t flags = 0;  // FrameFlag
  uint16_t reserved0 = 0;
  uint64_t epoch = 0;  // of the sender
  uint64_t low = 0;    // every mutating operation below it has been answered to this client
  uint64_t body_bytes = 0;
  uint32_t meta_bytes = 0;  // entries and extras
  uint32_t entry_count = 0;
  uint32_t reserved1 = 0;
  uint32_t check = 0;  // low half of XXH3-64 over the head with this field zero
};
static_assert(sizeof(FrameHeader) == 48);

struct FrameEntry {  // wire layout
  uint8_t type;
  uint8_t flags;
  uint8_t dtype;
  uint8_t encoding;
  uint32_t chunk;
  uint64_t key_low;
  uint64_t key_high;
  uint64_t number;
  uint64_t seq;
  uint64_t need;
  uint64_t body_bytes;
  uint32_t extra_bytes;
  uint32_t param;
};
static_assert(sizeof(FrameEntry) == 64);

// Operations smaller than this share frames; larger ones travel alone.
inline constexpr size_t kCoalesceBelowBytes = size_t{64} << 10;
inline constexpr size_t kFrameBytesMax = size_t{1} << 20;  // of a frame of several operations

// What a decoder accepts from a peer.
struct FrameLimits {
  size_t meta_bytes_max = size_t{17} << 20;  // the largest message is an EPOCH of 16 MiB
  size_t body_bytes_max = size_t{1} << 40;   // each body is bounded again by who takes it

  // Before the peer has proved who it is.
  static FrameLimits Unproved() { return {4096 - sizeof(FrameHeader), 0}; }
};

// A frame on its way out.  Bodies are references to the memory of their owners.
struct Frame {
  std::string head;
  std::vector<Bytes> bodies;
  size_t body_bytes = 0;
};

// The check of a head: low half of XXH3-64 over it with the check's own field zero.
uint32_t CheckOfHead(std::span<const std::byte> head);
// Writes the check of a head; Finish has done it already.
void Seal(std::string* head);
// Says in the head of a frame that is made that a check follows its bodies.
void AnnounceBodyCheck(Frame* frame);

//   throws  kInvalidArgument  not a frame, another version, or above the limits
FrameHeader DecodeHeader(std::span<const std::byte> bytes, const FrameLimits& limits);

}  // namespace tkv
