// Rows of a key with a value, as a contribution to its chunks in runs.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "codec/codec.h"

namespace tkv::codec {

// Writes rows as runs of elements in the chunks of a dense key.  A row may cross the border of
// chunks.
class RunWriter {
 public:
  //   ids    ascending, each once
  //   param  0 or kWideValues
  //   owns   borrows meta and ids
  RunWriter(const KeyMeta& meta, size_t row_elements, std::span<const uint64_t> ids,
            uint32_t param = 0);

  size_t bytes() const;
  // Writes a contribution into a block of bytes() bytes.
  //   shape  row(i): the row of the i-th id, of the compute type
  void Write(const std::function<const std::byte*(size_t)>& row, const Block& block,
             Contribution* made) const;

 private:
  template <typename F>
  void ForPieces(F f) const;

  const KeyMeta& meta_;
  const uint32_t param_;
  const DType type_;  // type of the values
  const size_t row_elements_;
  const std::span<const uint64_t> ids_;
  std::vector<std::vector<Run>> runs_;  // runs of each chunk
  size_t elements_ = 0;
};

}  // namespace tkv::codec
