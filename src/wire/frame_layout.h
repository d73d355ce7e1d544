// The layout of frames: all that a transport has to know about them.  frame.h and message.h define
// the operations in a frame.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"

namespace tkv {

inline constexpr uint32_t kFrameMagic = 0x31564B54;  // "TKV1"
// The version of this layout.  The meaning of operations has its own version (version.h), so that a
// peer with another protocol version can still read the refusal.
inline constexpr uint8_t kFrameVersion = 1;

enum FrameFlag : uint8_t {
  kChecksBodies = 1  // the bodies are followed by their ValueCheck (value_check.h)
};

struct FrameHeader {  // wire layout
  uint32_t magic = kFrameMagic;
  uint8_t version = kFrameVersion;
  uint8_t flags = 0;  // FrameFlag
  uint16_t reserved0 = 0;
  uint64_t epoch = 0;  // the sender's
  uint64_t low = 0;    // this client has the replies of all mutating operations below
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
inline constexpr size_t kFrameBytesMax = size_t{1} << 20;  // if a frame has several operations

// The sizes that a decoder accepts from a peer.
struct FrameLimits {
  size_t meta_bytes_max = size_t{17} << 20;  // the largest message is an EPOCH of 16 MiB
  size_t body_bytes_max = size_t{1} << 40;   // the receiver of a body bounds it again

  // Returns the limits for a peer that has not yet proved its identity.
  static FrameLimits Unproved() { return {4096 - sizeof(FrameHeader), 0}; }
};

// An outgoing frame.  Its bodies refer to the memory of their owners.
struct Frame {
  std::string head;
  std::vector<Bytes> bodies;
  size_t body_bytes = 0;
};

// Returns the check of a head: the low half of XXH3-64, computed with the check's own field zero.
uint32_t CheckOfHead(std::span<const std::byte> head);
// Writes the check into a head.  FrameBuilder::Finish calls it already.
void Seal(std::string* head);
// Marks in a finished frame's head that a check follows the bodies, and seals the head again.
void AnnounceBodyCheck(Frame* frame);

//   throws  kInvalidArgument  not a frame, another version, or above the limits
FrameHeader DecodeHeader(std::span<const std::byte> bytes, const FrameLimits& limits);

}  // namespace tkv
