#include "wire/key_id.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "base/format.h"
#include "base/key_text.h"

namespace tkv {
namespace {

enum Tag : char { kInt = 0, kString = 1, kInternal = 2 };  // wire value: never renumber
constexpr size_t kPrefix = sizeof(uint32_t) + 1;
static_assert(kPrefix + kKeyTextBytesMax == kKeyBytesMax);

std::string Prefix(uint32_t store, Tag tag) {
  std::string bytes(kPrefix, '\0');
  std::memcpy(bytes.data(), &store, sizeof(store));
  bytes[kPrefix - 1] = tag;
  return bytes;
}

}  // namespace

std::string CanonicalKey(uint32_t store, const KeyView& key) {
  std::string bytes = Prefix(store, key.is_string ? kString : kInt);
  if (key.is_string) {
    bytes += key.text;
  } else {
    bytes.append(reinterpret_cast<const char*>(&key.number), sizeof(key.number));
  }
  if (bytes.size() > kKeyBytesMax) {
    throw Fail(Code::kInvalidArgument, "the key has {} bytes, at most {} are allowed",
               key.text.size(), kKeyBytesMax - kPrefix);
  }
  return bytes;
}

KeyView KeyOf(std::string_view canonical) noexcept {
  const std::string_view name = canonical.substr(std::min(canonical.size(), kPrefix));
  if (canonical.size() >= kPrefix && canonical[kPrefix - 1] == kString) return name;
  int64_t number = 0;
  std::memcpy(&number, name.data(), std::min(name.size(), sizeof(number)));
  return number;
}

std::string InternalKey(uint32_t store, std::string_view name) {
  return Prefix(store, kInternal) + std::string(name);
}

uint32_t StoreOf(std::string_view canonical) noexcept {
  uint32_t store = 0;
  std::memcpy(&store, canonical.data(), std::min(canonical.size(), sizeof(store)));
  return store;
}

bool IsCanonicalKey(std::string_view bytes) noexcept {
  if (bytes.size() < kPrefix || bytes.size() > kKeyBytesMax) return false;
  const char tag = bytes[kPrefix - 1];
  if (tag == kInternal) return WhyNoKey(bytes.substr(kPrefix)) == nullptr;
  return tag == kInt ? bytes.size() == kPrefix + sizeof(int64_t) : tag == kString;
}

std::string ShownKey(std::string_view canonical) {
  if (!IsCanonicalKey(canonical)) return "?";
  const std::string_view name = canonical.substr(kPrefix);
  if (canonical[kPrefix - 1] == kString) return Format("'{}'", name);
  if (canonical[kPrefix - 1] == kInternal) return std::string(name);
  int64_t number = 0;
  std::memcpy(&number, name.data(), sizeof(number));
  return Format("{}", number);
}

KeyId IdOf(std::string_view canonical) noexcept {
  const XXH128_hash_t hash = XXH3_128bits(canonical.data(), canonical.size());
  return {hash.low64, hash.high64};
}

}  // namespace tkv
