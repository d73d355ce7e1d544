// The protocol of a process, and the reasons why two processes cannot work together.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tkv/error.h"

namespace tkv {

// Grows when messages change in a way that older processes misunderstand.  A change that a bit of
// Protocol::features can announce gets such a bit instead of a new version.
inline constexpr uint32_t kProtocolVersion = 2;

// Bits of Protocol::features.  wire value: never renumber
inline constexpr uint64_t kTraceFeature = 1;      // a server that answers TRACE
inline constexpr uint64_t kFailsFeature = 2;      // a server that takes a PUSH with kFails
inline constexpr uint64_t kDoneFeature = 4;       // a server that takes kUnlessDone and kDone
inline constexpr uint64_t kSavesRowsFeature = 8;  // a server that cuts and restores keys by rows
inline constexpr uint64_t kListFeature = 16;      // a server that answers LIST
inline constexpr uint64_t kRuleFeature = 32;      // a server that takes a DESCRIBE with kWithRule
inline constexpr uint64_t kAssignsFeature = 64;   // a server that takes a RESTORE with kOnlyValue
inline constexpr uint64_t kMakersFeature = 128;   // a server that takes a DESCRIBE with kMayMake
inline constexpr uint64_t kStepsFeature =
    256;  // a server that takes a PUSH and a STATUS with kInStep
inline constexpr uint64_t kRestoresStepsFeature =
    512;  // a server that takes a RESTORE with kInStep
// A server whose WELCOME says if the job has begun, and that takes a PUSH with kBegins.
inline constexpr uint64_t kBegunFeature = 1024;
inline constexpr uint64_t kOfRuleFeature = 2048;  // a server that takes a PUSH with kOfRule

// Returns the package that this process runs, such as "tensorkv 0.1.0".
std::string PackageName();
// Returns the package's version as a number, for messages with little space.  0 means unknown.
uint32_t PackageNumber() noexcept;
std::string PackageNameOf(uint32_t number);

// The protocol of one side of a connection, sent in HELLO and WELCOME.
struct Protocol {
  static constexpr size_t kPackageBytesMax = 64;

  uint32_t version = kProtocolVersion;
  uint64_t features = 0;  // abilities beyond the version, as bits
  uint64_t required = 0;  // the bits that the other side must have, too
  std::string package;    // its PackageName(), or empty
  bool operator==(const Protocol&) const = default;
};

// Returns the protocol of this process.
Protocol ThisProtocol();

// Returns "worker 2 speaks protocol 1, head protocol 2 (tensorkv 0.1.0); upgrade tensorkv where
// worker 2 runs".
std::string VersionsDiffer(std::string_view peer, const Protocol& theirs, std::string_view self,
                           const Protocol& ours);
// Returns the reason why these two cannot work together, or nullopt if they can.  If only one side
// has a feature, this is an error if that side requires it; otherwise the feature is not used.
std::optional<Error> WhyNotTogether(std::string_view peer, const Protocol& theirs,
                                    std::string_view self, const Protocol& ours);

}  // namespace tkv
