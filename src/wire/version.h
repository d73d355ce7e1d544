// Which protocol processes speak, and why two of them cannot work together.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tkv/error.h"

namespace tkv {

// Grows when messages change so that older processes misunderstand them.  What can be told apart by
// a bit of Protocol::features gets a bit, not a version.
inline constexpr uint32_t kProtocolVersion = 2;

// Bits of Protocol::features.  wire value: never renumber
inline constexpr uint64_t kTraceFeature = 1;  // a server that answers TRACE
inline constexpr uint64_t kFailsFeature = 2;  // a server that takes a PUSH with kFails
inline constexpr uint64_t kDoneFeature = 4;   // a server that takes one with kUnlessDone or kDone
inline constexpr uint64_t kSavesRowsFeature = 8;  // a server that cuts and takes back keys by rows
inline constexpr uint64_t kListFeature = 16;      // a server that answers LIST
inline constexpr uint64_t kRuleFeature = 32;      // a server that takes a DESCRIBE with kWithRule
inline constexpr uint64_t kAssignsFeature = 64;   // a server that takes a RESTORE with kOnlyValue
inline constexpr uint64_t kMakersFeature = 128;   // a server that takes a DESCRIBE with kMayMake
inline constexpr uint64_t kStepsFeature =
    256;  // a server that takes a PUSH and a STATUS with kInStep

// "tensorkv 0.1.0": the package that this process runs.
std::string PackageName();
// The same as a number, for messages that have room for no more; 0: not said.
uint32_t PackageNumber() noexcept;
std::string PackageNameOf(uint32_t number);

// What one side of a connection speaks; travels in HELLO and WELCOME.
struct Protocol {
  static constexpr size_t kPackageBytesMax = 64;

  uint32_t version = kProtocolVersion;
  uint64_t features = 0;  // bits of what it can do beyond its version
  uint64_t required = 0;  // of them, what the other side must be able to do, too
  std::string package;    // its PackageName(), where it says so
  bool operator==(const Protocol&) const = default;
};

// What this process speaks.
Protocol ThisProtocol();

// "worker 2 speaks protocol 1, head protocol 2 (tensorkv 0.1.0); upgrade tensorkv where worker 2 runs"
std::string VersionsDiffer(std::string_view peer, const Protocol& theirs, std::string_view self,
                           const Protocol& ours);
// Why these two cannot work together; nothing where they can.  Features that only one side has are
// not used, unless that side requires them.
std::optional<Error> WhyNotTogether(std::string_view peer, const Protocol& theirs,
                                    std::string_view self, const Protocol& ours);

}  // namespace tkv
