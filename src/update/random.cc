#include "update/random.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "update/scalar_math.h"

namespace tkv {
namespace {

// Mixes bits with the finalizer of splitmix64.
uint64_t Mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint32_t Low(uint64_t x) { return static_cast<uint32_t>(x); }
uint32_t High(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

// Returns a number in (0, 1] made of 53 bits of two words.
double Unit(uint32_t low, uint32_t high) {
  const uint64_t bits = (uint64_t{high} << 32 | low) >> 11;
  return std::ldexp(static_cast<double>(bits + 1), -53);
}

struct Pair {
  double even, odd;
};

Pair NormalPair(uint64_t block, uint64_t count, uint64_t key) {
  const auto words =
      Philox({Low(block), High(block), Low(count), High(count)}, {Low(key), High(key)});
  const double radius = std::sqrt(-2 * Log(Unit(words[0], words[1])));
  const double turns = Unit(words[2], words[3]);
  constexpr double kTurn = 2 * std::numbers::pi;
  return {radius * Cos(kTurn * turns), radius * Cos(kTurn * (turns - 0.25))};
}

template <typename T>
void Fill(const DrawPosition& place, const Draw& draw, T* out, size_t count) {
  const uint64_t salt =
      Mixed(std::bit_cast<uint64_t>(draw.seed) + draw.number * 0x9E3779B97F4A7C15u);
  const uint64_t key = Mixed(place.stream ^ salt);
  const auto update = std::bit_cast<uint64_t>(draw.count);
  Pair pair{};
  for (size_t i = 0; i < count; ++i) {
    const uint64_t index = place.begin + i;
    if (i == 0 || index % 2 == 0) pair = NormalPair(index / 2, update, key);
    out[i] = static_cast<T>(index % 2 == 0 ? pair.even : pair.odd);
  }
}

}  // namespace

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {High(b) ^ counter[1] ^ key[0], Low(b), High(a) ^ counter[3] ^ key[1], Low(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

uint64_t StreamOf(const KeyView& key) noexcept {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  const auto add = [&](uint8_t byte) { hash = (hash ^ byte) * 0x100000001B3u; };
  add(key.is_string ? 1 : 0);
  for (const char c : key.text) add(static_cast<uint8_t>(c));
  for (int i = 0; i < 8 && !key.is_string; ++i) {
    add(static_cast<uint8_t>(static_cast<uint64_t>(key.number) >> (8 * i)));
  }
  return Mixed(hash);
}

void DrawNormals(DType dtype, const DrawPosition& place, const Draw& draw, void* out,
                 size_t count) {
  if (dtype == DType::kF64) return Fill(place, draw, static_cast<double*>(out), count);
  Fill(place, draw, static_cast<float*>(out), count);
}

}  // namespace tkv
