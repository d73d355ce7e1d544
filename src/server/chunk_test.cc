// A push that fails for lack of memory leaves its round unchanged.

#include "server/chunk.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/mix.h"
#include "tests/scarce_memory.h"

namespace tkv {
namespace {

constexpr size_t kElements = 4;
constexpr uint32_t kRows = 100;

class ChunkTest : public ::testing::TestWithParam<bool> {  // parameter: by rows
 protected:
  Chunk NewChunk() {
    Chunk chunk;
    chunk.elements = kElements;
    chunk.dtype = DType::kF32;
    if (!GetParam()) {
      editor_.Start(&chunk, Floats(0));
      return chunk;
    }
    chunk.bucket = {kRows, 0, 1, kElements * sizeof(float)};
    KeyMeta meta;
    meta.shape = Shape({kElements});
    meta.layout = Layout::kRows;
    meta.row_count = kRows;
    editor_.StartRows(&chunk, meta, {});
    return chunk;
  }
  static Bytes Floats(float number) {
    auto owner = std::make_shared<std::vector<float>>(kElements, number);
    return {reinterpret_cast<const std::byte*>(owner->data()), kElements * sizeof(float), owner};
  }
  // Returns a push of this rank.  By rows, the row belongs to this rank alone.
  codec::Part PartOf(Rank rank) const {
    const auto number = static_cast<float>(rank + 1);
    if (!GetParam()) return {Encoding::kDense, 0, Floats(number)};
    auto owner = std::make_shared<std::vector<std::byte>>(sizeof(uint64_t) + 4 * kElements);
    const auto id = static_cast<uint64_t>(rank);
    std::memcpy(owner->data(), &id, sizeof(id));
    std::memcpy(owner->data() + sizeof(id), Floats(number).data, 4 * kElements);
    return {Encoding::kRows, 0, {owner->data(), owner->size(), owner}};
  }
  std::vector<float> ValueOf(const Chunk& chunk) {
    Bytes bytes;
    if (GetParam()) {
      std::vector<uint64_t> mixes(kRows);
      for (uint64_t id = 0; id < kRows; ++id) mixes[id] = Mix(id);
      bytes = editor_.ReadRows(chunk, mixes);
    } else {
      bytes = chunk.value.Read();
    }
    std::vector<float> value(bytes.size / sizeof(float));
    std::memcpy(value.data(), bytes.data, bytes.size);
    return value;
  }

  // The contents of the first round.
  struct Seen {
    uint64_t version = 0;
    uint32_t count = 0;
    size_t held = 0, hyperparameters = 0;
    std::vector<bool> has;
    std::vector<float> sum;
    bool operator==(const Seen&) const = default;
  };
  static Seen RoundOf(const Chunk& chunk) {
    Seen seen{.version = chunk.version};
    if (chunk.rounds.empty()) return {.version = chunk.version, .has = {false, false, false}};
    const Round& round = chunk.rounds[0];
    seen.count = round.count;
    seen.held = round.held.size();
    seen.hyperparameters = round.hyperparameters.size();
    for (const Rank rank : {0, 1, 70}) seen.has.push_back(round.Has(rank));
    for (size_t i = 0; i < round.rows.size(); ++i) {
      const auto* const row = static_cast<const float*>(round.rows.values().at(i));
      seen.sum.insert(seen.sum.end(), row, row + kElements);
    }
    const Bytes dense = round.sum.Read();
    const auto* const sum = reinterpret_cast<const float*>(dense.data);
    if (dense.size > 0) seen.sum.assign(sum, sum + kElements);
    return seen;
  }

  BufferPool pool_;
  ChunkEditor editor_{&pool_, 1 << 20};
};

// A rank of 64 or more, and a second set of hyperparameters, need memory in the round.
TEST_P(ChunkTest, APushThatMemoryIsLackingForIsNotInItsRound) {
  constexpr Rank kRanks[] = {0, 70, 1};
  for (const bool deterministic : {false, true}) {
    Chunk chunk = NewChunk();
    for (const Rank rank : kRanks) {
      const auto push = [&](Chunk* to) {
        const Scalars scalars{.numbers = std::vector<double>(static_cast<size_t>(rank), 0.5)};
        if (rank == 1 && !deterministic) {
          return editor_.ContributeLast(to, rank, PartOf(rank), scalars);
        }
        editor_.Contribute(to, 0, rank, PartOf(rank), scalars, deterministic);
      };
      Chunk after = chunk;
      push(&after);
      test::Attempt attempt{.ran_out = true};
      for (int allocations = 0; attempt.ran_out; ++allocations) {
        Chunk tried = chunk;
        attempt = test::WithMemoryFor(allocations, [&] { push(&tried); });
        if (!attempt.succeeded) {
          EXPECT_EQ(RoundOf(tried), RoundOf(chunk)) << rank << " " << allocations;
          push(&tried);
        }
        // The update of the round may have failed for lack of memory; the chunk keeps the error.
        if (!tried.failure) {
          EXPECT_EQ(ValueOf(tried), ValueOf(after));
        }
        EXPECT_EQ(RoundOf(tried), RoundOf(after)) << rank << " " << allocations;
      }
      chunk = std::move(after);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, ChunkTest, ::testing::Bool());

}  // namespace
}  // namespace tkv
