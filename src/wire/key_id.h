// Names of keys as they travel, and where their chunks live.

#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tkv/key.h"

namespace tkv {

// XXH3-128 of the canonical name.  Two names with one id are told apart at INIT, where the full
// name is compared.  wire value: never renumber
struct KeyId {
  uint64_t low = 0;
  uint64_t high = 0;
  auto operator<=>(const KeyId&) const noexcept = default;
};

// The id is a hash already.
inline size_t hash_value(const KeyId& id) noexcept { return id.low; }

// One chunk of one key.
struct ChunkId {
  KeyId key;
  uint32_t chunk = 0;
  auto operator<=>(const ChunkId&) const noexcept = default;
};

inline size_t hash_value(const ChunkId& id) noexcept {
  return id.key.low ^ (uint64_t{id.chunk} * 0x9E3779B97F4A7C15u);
}

// Canonical names: store number (u32), tag (u8), then int64 or UTF-8, little-endian.
inline constexpr size_t kKeyBytesMax = 1024;
//   throws  kInvalidArgument  longer than kKeyBytesMax
std::string CanonicalKey(uint32_t store, const KeyView& key);
// The key of a canonical name that is no internal one; borrows its text.
KeyView KeyOf(std::string_view canonical) noexcept;
// Keys that the library makes for itself; users cannot name them.
std::string InternalKey(uint32_t store, std::string_view name);
// The number of the store that a canonical name belongs to.
uint32_t StoreOf(std::string_view canonical) noexcept;
// Whether these bytes are a canonical name.
bool IsCanonicalKey(std::string_view bytes) noexcept;
// As messages show it: 3, 'w3' or barrier.
std::string ShownKey(std::string_view canonical);

KeyId IdOf(std::string_view canonical) noexcept;

}  // namespace tkv
