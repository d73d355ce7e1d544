// Reads whatever a message carries, as its receiver would.

#pragma once

#include "trace/span.h"
#include "wire/listed.h"
#include "wire/message.h"

namespace tkv::test {

//   throws  what is wrong with the payload
inline void ReadPayload(const Message& message) {
  switch (message.type) {
    case Type::kHello:
      DecodeHello(message.extra);
      break;
    case Type::kInit:
    case Type::kExists:
    case Type::kMeta: {
      const KeyMeta meta = DecodeKeyMeta(message.extra);
      const uint32_t last = meta.chunk_count() - 1;
      if (meta.elements() < (uint64_t{1} << 58)) (void)meta.bytes_of(last);
      break;
    }
    case Type::kPush:
      DecodeScalars(message.extra);
      break;
    case Type::kControl:
      DecodeUpdateSpec(message.extra);
      break;
    case Type::kEpoch:
      DecodeEpoch(message.number, message.extra);
      break;
    case Type::kWelcome:
      DecodeWelcome(message.extra);
      break;
    case Type::kOk:
    case Type::kStatusReply:
      DecodeChunkStatus(message.extra);
      break;
    case Type::kError:
      (void)ErrorOf(message).what();
      break;
    case Type::kTraced:
      DecodeSpans(message.extra);
      break;
    case Type::kListed:
      DecodeListed(message.extra);
      break;
    default:
      break;
  }
}

}  // namespace tkv::test
