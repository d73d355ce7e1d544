// The checks of a HELLO that the head and the servers share.

#pragma once

#include <optional>
#include <string_view>

#include "wire/effects.h"
#include "wire/message.h"
#include "wire/version.h"

namespace tkv {

// Returns "worker", "server" or "observer"; of a role of a later version "process of an unknown
// role".
const char* Name(Role role);

// Returns the HELLO of a process of this job that speaks a protocol like ours.  Otherwise closes
// the link with the reason, and returns nothing.
//   self  names this process in the reason
std::optional<Hello> ReadHello(LinkId link, const Message& message, std::string_view job,
                               const Protocol& ours, std::string_view self, Effects* effects);

}  // namespace tkv
