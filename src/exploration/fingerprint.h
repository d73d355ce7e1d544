// Computes the identity of a machine's state: a hash of all that the machine remembers.
//
// The compiler takes aggregates apart field by field, so that a new field cannot be forgotten.
// Only classes with private members list their fields here.

#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "node/node.h"

namespace tkv::exploration {

struct Fingerprint {
  uint64_t low = 0;
  uint64_t high = 0;
  auto operator<=>(const Fingerprint&) const = default;
};
inline size_t hash_value(const Fingerprint& fingerprint) noexcept { return fingerprint.low; }

Fingerprint FingerprintOf(std::string_view bytes);
Fingerprint FingerprintOf(const Frame& frame);
// Appends the complete state of the node and its machines, as bytes.
void AppendState(const HeadNode& node, std::string* bytes);
void AppendState(const ServerNode& node, std::string* bytes);
void AppendState(const ClientNode& node, std::string* bytes);

}  // namespace tkv::exploration
