// Names and ids of keys and chunks, as messages carry them.

#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tkv/key.h"

namespace tkv {

// The id of a key: XXH3-128 of its canonical name.  INIT compares full names, so that two names
// with the same id are detected.  wire value: never renumber
struct KeyId {
  uint64_t low = 0;
  uint64_t high = 0;
  auto operator<=>(const KeyId&) const noexcept = default;
};

// The id is a hash already.
inline size_t hash_value(const KeyId& id) noexcept { return id.low; }

// The id of one chunk of a key.
struct ChunkId {
  KeyId key;
  uint32_t chunk = 0;
  auto operator<=>(const ChunkId&) const noexcept = default;
};

inline size_t hash_value(const ChunkId& id) noexcept {
  return id.key.low ^ (uint64_t{id.chunk} * 0x9E3779B97F4A7C15u);
}

// A canonical name is a store number (u32), a tag (u8), then an int64 or UTF-8, little-endian.
inline constexpr size_t kKeyBytesMax = 1024;
//   throws  kInvalidArgument  longer than kKeyBytesMax
std::string CanonicalKey(uint32_t store, const KeyView& key);
// Returns the key of a canonical name that is not internal.  The result borrows the text.
KeyView KeyOf(std::string_view canonical) noexcept;
// Returns the name of a key that the library creates for itself.  Users cannot name such keys.
std::string InternalKey(uint32_t store, std::string_view name);
// Returns the number of the store that a canonical name belongs to.
uint32_t StoreOf(std::string_view canonical) noexcept;
// Returns true if these bytes are a canonical name.
bool IsCanonicalKey(std::string_view bytes) noexcept;
// Returns a key as error texts show it: 3, 'w3' or barrier.
std::string ShownKey(std::string_view canonical);

KeyId IdOf(std::string_view canonical) noexcept;

}  // namespace tkv
