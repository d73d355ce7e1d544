#include "wire/version.h"

#include <array>

#include "base/format.h"
#include "base/logfmt.h"

namespace tkv {
namespace {

struct Release {
  uint32_t major = 0, minor = 0, patch = 0;
};

constexpr uint32_t kPartBits = 10;
constexpr uint32_t kPartMask = (1U << kPartBits) - 1;

constexpr Release ReleaseOf(std::string_view text) {
  std::array<uint32_t, 3> parts{};
  size_t part = 0;
  for (const char c : text) {
    if (c == '.' && ++part == parts.size()) break;
    if (c >= '0' && c <= '9') parts[part] = parts[part] * 10 + static_cast<uint32_t>(c - '0');
  }
  return {parts[0], parts[1], parts[2]};
}

constexpr Release kRelease = ReleaseOf(TKV_VERSION);

std::string Spoken(const Protocol& protocol) {
  std::string text = Format("protocol {}", protocol.version);
  return protocol.package.empty() ? text : text + Format(" ({})", Escaped(protocol.package));
}

}  // namespace

std::string PackageName() { return "tensorkv " TKV_VERSION; }

Protocol ThisProtocol() {
  Protocol protocol;
  protocol.features = kTraceFeature | kFailsFeature | kDoneFeature | kSavesRowsFeature |
                      kListFeature | kRuleFeature | kAssignsFeature | kMakersFeature |
                      kStepsFeature | kRestoresStepsFeature | kBegunFeature | kOfRuleFeature;
  protocol.package = PackageName();
  return protocol;
}

uint32_t PackageNumber() noexcept {
  return kRelease.major << 2 * kPartBits | kRelease.minor << kPartBits | kRelease.patch;
}

std::string PackageNameOf(uint32_t number) {
  if (number == 0) return {};
  return Format("tensorkv {}.{}.{}", number >> 2 * kPartBits, number >> kPartBits & kPartMask,
                number & kPartMask);
}

std::string VersionsDiffer(std::string_view peer, const Protocol& theirs, std::string_view self,
                           const Protocol& ours) {
  return Format("{} speaks {}, {} {}; upgrade tensorkv where {} runs", peer, Spoken(theirs), self,
                Spoken(ours), theirs.version < ours.version ? peer : self);
}

std::optional<Error> WhyNotTogether(std::string_view peer, const Protocol& theirs,
                                    std::string_view self, const Protocol& ours) {
  const auto lacks = [](std::string_view who, const Protocol& its, std::string_view other,
                        const Protocol& others) {
    return Fail(Code::kFailedPrecondition,
                "{} ({}) requires features {:#x}, which {} ({}) does not have; upgrade tensorkv "
                "where {} runs",
                who, Spoken(its), its.required & ~others.features, other, Spoken(others), other);
  };
  if (theirs.version != ours.version) {
    return Error(Code::kFailedPrecondition, VersionsDiffer(peer, theirs, self, ours));
  }
  if ((theirs.required & ~ours.features) != 0) return lacks(peer, theirs, self, ours);
  if ((ours.required & ~theirs.features) != 0) return lacks(self, ours, peer, theirs);
  return std::nullopt;
}

}  // namespace tkv
