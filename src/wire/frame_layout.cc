#include "wire/frame_layout.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

#include "base/format.h"

namespace tkv {

uint32_t CheckOfHead(std::span<const std::byte> head) {
  FrameHeader header;
  std::memcpy(&header, head.data(), sizeof(header));
  header.check = 0;
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, &header, sizeof(header));
  XXH3_64bits_update(&state, head.data() + sizeof(header), head.size() - sizeof(header));
  return static_cast<uint32_t>(XXH3_64bits_digest(&state));
}

void Seal(std::string* head) {
  const uint32_t check = CheckOfHead(std::as_bytes(std::span(*head)));
  std::memcpy(head->data() + offsetof(FrameHeader, check), &check, sizeof(check));
}

void AnnounceBodyCheck(Frame* frame) {
  frame->head[offsetof(FrameHeader, flags)] |= static_cast<char>(kChecksBodies);
  Seal(&frame->head);
}

FrameHeader DecodeHeader(std::span<const std::byte> bytes, const FrameLimits& limits) {
  if (bytes.size() < sizeof(FrameHeader)) {
    throw Fail(Code::kInvalidArgument, "frame: {} bytes are no header", bytes.size());
  }
  FrameHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kFrameMagic) throw Fail(Code::kInvalidArgument, "frame: not a TensorKV peer");
  if (header.version != kFrameVersion) {
    throw Fail(Code::kInvalidArgument, "frame: version {}, this build speaks {}", header.version,
               kFrameVersion);
  }
  if ((header.flags & ~kChecksBodies) != 0 || header.reserved0 != 0 || header.reserved1 != 0) {
    throw Fail(Code::kInvalidArgument, "frame: reserved bits are set");
  }
  if (header.meta_bytes > limits.meta_bytes_max || header.body_bytes > limits.body_bytes_max) {
    throw Fail(Code::kInvalidArgument, "frame: {} + {} bytes, at most {} + {} are allowed",
               header.meta_bytes, header.body_bytes, limits.meta_bytes_max, limits.body_bytes_max);
  }
  // Only small operations share a frame; a large one travels alone.
  if (header.entry_count > 1 && header.meta_bytes + header.body_bytes > kFrameBytesMax) {
    throw Fail(Code::kInvalidArgument, "frame: {} operations in {} + {} bytes, at most {} together",
               header.entry_count, header.meta_bytes, header.body_bytes, kFrameBytesMax);
  }
  if (header.entry_count == 0 || header.entry_count > header.meta_bytes / sizeof(FrameEntry)) {
    throw Fail(Code::kInvalidArgument, "frame: {} operations in {} bytes", header.entry_count,
               header.meta_bytes);
  }
  return header;
}

}  // namespace tkv
