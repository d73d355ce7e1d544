// Readers of fields that several messages have.  They check the bytes of a peer.
//
//   throws  kInvalidArgument  the number has no meaning in its field

#pragma once

#include "base/byte_io.h"
#include "wire/message.h"

namespace tkv {

// Reads an enumerator from 0 to `last`.  `what` names the field in the error.
template <typename T>
T ReadEnum(ByteReader* reader, T last, const char* what) {
  const auto value = reader->Number<uint8_t>();
  if (value > static_cast<uint8_t>(last)) {
    throw Fail(Code::kInvalidArgument, "there is no {} {}", what, value);
  }
  return static_cast<T>(value);
}

inline bool ReadBool(ByteReader* reader) {
  const auto value = reader->Number<uint8_t>();
  if (value > 1) throw Fail(Code::kInvalidArgument, "{} is not a truth value", value);
  return value == 1;
}

inline Rank ReadRank(ByteReader* reader) {
  const auto rank = reader->Number<int32_t>();
  if (rank < kNoRank || rank >= kWorkersMax) {
    throw Fail(Code::kInvalidArgument, "there is no rank {}", rank);
  }
  return rank;
}

inline DType ReadDType(ByteReader* reader) { return ReadEnum(reader, kLastDType, "dtype"); }

}  // namespace tkv
