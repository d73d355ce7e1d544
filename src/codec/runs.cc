#include "codec/runs.h"

#include <algorithm>
#include <cstring>

#include "kernels/kernels.h"

namespace tkv::codec {

// Calls f(index of the row, offset in the row, chunk, run within the chunk), ascending.
template <typename F>
void RunWriter::ForPieces(F f) const {
  const bool is_whole = meta_.chunk_count() == 1;
  for (size_t row = 0; row < ids_.size(); ++row) {
    const uint64_t begin = ids_[row] * row_elements_;
    for (size_t offset = 0; offset < row_elements_;) {
      const uint64_t element = begin + offset;
      const auto chunk = is_whole ? 0 : static_cast<uint32_t>(element / meta_.chunk_elements);
      const uint64_t first = uint64_t{chunk} * meta_.chunk_elements;
      const uint64_t left = first + meta_.elements_of(chunk) - element;
      const size_t length = std::min<size_t>(row_elements_ - offset, left);
      f(row, offset, chunk,
        Run{static_cast<uint32_t>(element - first), static_cast<uint32_t>(length)});
      offset += length;
    }
  }
}

RunWriter::RunWriter(const KeyMeta& meta, size_t row_elements, std::span<const uint64_t> ids,
                     uint32_t param)
    : meta_(meta),
      param_(param),
      type_(ValueType(meta.dtype, param)),
      row_elements_(row_elements),
      ids_(ids),
      runs_(meta.chunk_count()) {
  ForPieces([&](size_t, size_t, uint32_t chunk, const Run& piece) {
    std::vector<Run>& runs = runs_[chunk];
    const bool goes_on = !runs.empty() && runs.back().begin + runs.back().length == piece.begin;
    if (goes_on) {
      runs.back().length += piece.length;
    } else {
      runs.push_back(piece);
    }
    elements_ += piece.length;
  });
}

size_t RunWriter::bytes() const {
  size_t bytes = elements_ * ItemSize(type_);
  for (const auto& runs : runs_) bytes += RunHeadBytes(runs.size());
  return bytes;
}

void RunWriter::Write(const std::function<const std::byte*(size_t)>& row, const Block& block,
                      Contribution* made) const {
  const DType compute = ComputeType(meta_.dtype);
  made->encoding = Encoding::kRuns;
  made->param = param_;
  made->bytes = block.bytes();
  made->ends.resize(runs_.size());
  std::vector<std::byte*> values(runs_.size());
  std::byte* at = block.data;
  for (size_t c = 0; c < runs_.size(); ++c) {
    values[c] = at = WriteRunHeads(runs_[c], at);
    for (const Run& run : runs_[c]) at += run.length * ItemSize(type_);
    made->ends[c] = static_cast<size_t>(at - block.data);
  }
  ForPieces([&](size_t number, size_t offset, uint32_t chunk, const Run& piece) {
    const std::byte* const source = row(number) + offset * ItemSize(compute);
    const size_t bytes = piece.length * ItemSize(type_);
    if (compute == type_) {
      std::memcpy(values[chunk], source, bytes);
    } else {
      kernels::Convert(compute, source, type_, values[chunk], piece.length);
    }
    values[chunk] += bytes;
  });
}

}  // namespace tkv::codec
