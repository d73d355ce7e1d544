// Caches the compiled code of one update program.

#pragma once

#include <array>
#include <optional>

#include "update/tile_driver.h"

namespace tkv {

// A cache of an update program's code for each dtype, compiled on first use.  Not thread-safe.
class CompiledUpdates {
 public:
  //   throws  kInvalidArgument (the dtype lacks an operation of the program)
  const CompiledUpdate& For(const Program& program, DType dtype) {
    auto& compiled = by_dtype_[static_cast<size_t>(dtype)];
    if (!compiled) compiled = CompileUpdate(program, dtype);
    return *compiled;
  }

 private:
  std::array<std::optional<CompiledUpdate>, 16> by_dtype_;
};

}  // namespace tkv
