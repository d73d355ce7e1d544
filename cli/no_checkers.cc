#include <string>

#include "checkers.h"
#include "tkv/error.h"

namespace tkv::cli {

void AddCheckers(CommandLine* line) {
  for (const std::string name : {"sim", "explore"}) {
    const auto refuse = [name]() -> int {
      throw Error(
          Code::kUnimplemented,
          name +
              ": not in this build; ./dev build in the source tree makes build/release/cli/tkv, "
              "which has it");
    };
    line->AddHidden(name.c_str(), "Check the protocol, in a build of the source tree", refuse)
        ->allow_extras();
  }
}

}  // namespace tkv::cli
