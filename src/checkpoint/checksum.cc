#include "checkpoint/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/format.h"

namespace tkv::checkpoint {
namespace {

constexpr size_t kCheckDigits = 32;

std::string DigitsOf(const XXH128_hash_t& hash) {
  return Format("{:016x}{:016x}", hash.high64, hash.low64);
}

// Returns the position of the digits in the text's first field "check"; npos if there is none.
size_t PlaceOfCheck(const std::string& text) {
  const size_t name = text.find("check");
  if (name == std::string::npos) return name;
  const size_t digits = text.find_first_of("0123456789abcdef", name + 5);
  const bool fits = digits != std::string::npos && digits + kCheckDigits <= text.size();
  return fits ? digits : std::string::npos;
}

}  // namespace

struct Checksum::State {
  State() { XXH3_128bits_reset(&hash); }
  XXH3_state_t hash;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {}

Checksum::~Checksum() = default;

void Checksum::Add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->hash, bytes.data(), bytes.size());
}

std::string Checksum::Digits() const { return DigitsOf(XXH3_128bits_digest(&state_->hash)); }

std::string CheckOf(std::span<const std::byte> bytes) {
  return DigitsOf(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string CheckOf(const std::string& text) {
  return CheckOf(std::as_bytes(std::span(text.data(), text.size())));
}

const std::string kNoCheck(kCheckDigits, '0');

void Seal(std::string* text) {
  text->replace(PlaceOfCheck(*text), kCheckDigits, kNoCheck);
  text->replace(PlaceOfCheck(*text), kCheckDigits, CheckOf(*text));
}

void CheckSeal(const std::string& text, const std::string& file) {
  const size_t place = PlaceOfCheck(text);
  if (place == std::string::npos) {
    throw Fail(Code::kDataLoss, "{}: this is no index of a snapshot", file);
  }
  std::string sealed = text;
  Seal(&sealed);
  if (sealed != text) throw Fail(Code::kDataLoss, "{}: the check does not match", file);
}

}  // namespace tkv::checkpoint
