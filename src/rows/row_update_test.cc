// Tests the random draws of row updates.

#include "rows/row_update.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tkv/optimizer.h"
#include "update/program_body.h"

namespace tkv {
namespace {

constexpr uint64_t kStream = 77;
constexpr size_t kRowElements = 64;
using Row = std::vector<float>;

struct Noise {
  const std::shared_ptr<const Optimizer> optimizer = Optimizer::Create("sgld");
  const CompiledUpdate update = CompileUpdate(optimizer->program(), DType::kF32);
  const std::vector<double> params = optimizer->ParamsFor(KeyView(1));

  // Returns a row of zeros after an update with a sum of zero.
  Row OfRow(uint64_t id, size_t elements = kRowElements) const {
    RowUpdate step(update, DType::kF32, elements, params, {}, 1, 1, kStream);
    Row row(elements);
    const RowParts parts{reinterpret_cast<std::byte*>(row.data())};
    const void* const sum = step.zeros();
    step.Run({&parts, 1}, &sum, &id);
    return row;
  }
  // Returns elements of a dense value of zeros, from `begin` on, after an update.
  Row OfDense(uint64_t begin, size_t elements = kRowElements) const {
    const Row zeros(elements);
    Row value(elements);
    UpdateScalars bound = BindScalars(update, params, {}, 1, 1);
    TileJob job;
    job.dtype = DType::kF32;
    job.count = elements;
    job.base = zeros.data();
    job.value = value.data();
    job.update = &update;
    job.scalars = &bound;
    job.stream = kStream;
    job.begin = begin;
    RunJobs({&job, 1}, 1);
    return value;
  }
};

TEST(RowUpdate, IdsThatDifferInTheirHighBitsHaveNoiseOfTheirOwn) {
  const Noise noise;
  for (const uint64_t id : {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 58) - 1}) {
    for (int bit = 58; bit < 63; ++bit) {  // 2^58 rows of 64 elements have 2^64
      EXPECT_NE(noise.OfRow(id), noise.OfRow(id | uint64_t{1} << bit)) << id << " bit " << bit;
    }
  }
  EXPECT_NE(noise.OfRow(uint64_t{1} << 58), noise.OfRow(uint64_t{1} << 59));
}

TEST(RowUpdate, DrawsWhatADenseValueDrawsAtTheSameElements) {
  const Noise noise;
  for (const uint64_t id : {uint64_t{0}, uint64_t{7}, (uint64_t{1} << 58) - 1}) {
    EXPECT_EQ(noise.OfRow(id), noise.OfDense(id * kRowElements)) << id;
  }
  constexpr size_t kLarge = 5000;  // several tiles
  EXPECT_EQ(noise.OfRow(3, kLarge), noise.OfDense(3 * kLarge, kLarge));
}

}  // namespace
}  // namespace tkv
