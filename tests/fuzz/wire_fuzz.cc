// Decodes random bytes from a peer: as the payload of one message type (TKV_FUZZ_TYPE, its number),
// and as a frame of such messages with a valid checksum.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "tests/payload.h"
#include "wire/frame.h"

namespace {

using namespace tkv;  // NOLINT(google-build-using-namespace)
using test::ReadPayload;

template <typename F>
void Try(F f) {
  try {
    f();
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  Message message;
  message.type = static_cast<Type>(TKV_FUZZ_TYPE);
  message.extra = bytes;
  Try([&] { ReadPayload(message); });
  if (size < sizeof(FrameEntry)) return 0;
  FrameHeader header;
  header.meta_bytes = static_cast<uint32_t>(size);
  header.entry_count = static_cast<uint32_t>(1 + data[0] % 4);
  std::memcpy(&header.body_bytes, data + offsetof(FrameEntry, body_bytes), sizeof(uint64_t));
  std::string head(reinterpret_cast<const char*>(&header), sizeof(header));
  head += bytes;
  for (size_t i = 0; i < header.entry_count; ++i) {
    const size_t at = sizeof(header) + i * sizeof(FrameEntry);
    if (at < head.size()) head[at] = static_cast<char>(TKV_FUZZ_TYPE);
  }
  Seal(&head);
  Try([&] {
    const auto view = std::as_bytes(std::span(head));
    std::vector<Message> messages;
    DecodeMessages(DecodeHeader(view, {}), view, &messages);
    for (const Message& decoded : messages) ReadPayload(decoded);
  });
  return 0;
}
