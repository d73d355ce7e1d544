// Computes the value that a row has before its first write.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tkv/dtype.h"
#include "tkv/rows.h"

namespace tkv {

// An initializer, checked for a dtype and a row length.  A value type: copies share their memory.
class InitialRow {
 public:
  //   throws  kInvalidArgument (a constant that the dtype cannot hold; draws for a dtype that is no
  //           float, or that may be infinite in it; an empty range)
  InitialRow(DType dtype, size_t elements, const RowInitializer& initializer);

  const RowInitializer& initializer() const noexcept { return initializer_; }

  // Writes the initial value of a row.  An element depends only on the seed, the id and the
  // element's index; it is rounded once.
  void Write(uint64_t id, void* out) const noexcept;

 private:
  void WriteUniform(uint64_t id, std::byte* out) const noexcept;
  void WriteNormal(uint64_t id, std::byte* out) const noexcept;

  DType dtype_;
  size_t elements_;
  RowInitializer initializer_;
  // A row; null if rows are zeros or drawn.
  std::shared_ptr<const std::vector<std::byte>> constant_;
};

}  // namespace tkv
