// What rows that nobody has written read as.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tkv/dtype.h"
#include "tkv/rows.h"

namespace tkv {

// A value type; copies share what they have.
class InitialRow {
 public:
  //   throws  kInvalidArgument  a constant that the dtype does not hold, draws of what is no float, or that
  //                             are infinite as this dtype, a range that is empty
  InitialRow(DType dtype, size_t elements, const RowInitializer& initializer);

  const RowInitializer& initializer() const noexcept { return initializer_; }

  // A pure function of the seed, the id and the number of the element, rounded once.
  void Write(uint64_t id, void* out) const noexcept;

 private:
  void WriteUniform(uint64_t id, std::byte* out) const noexcept;
  void WriteNormal(uint64_t id, std::byte* out) const noexcept;

  DType dtype_;
  size_t elements_;
  RowInitializer initializer_;
  std::shared_ptr<const std::vector<std::byte>> constant_;  // a row; null: zeros, or draws
};

}  // namespace tkv
