#include "codec/codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tkv::codec {
namespace {

KeyMeta Meta(int64_t elements) {
  KeyMeta meta;
  meta.dtype = DType::kF32;
  meta.shape = Shape({elements});
  meta.chunk_elements = 1024;
  return meta;
}

std::optional<Code> CodeOf(const std::optional<Error>& error) {
  return error ? std::optional(error->code()) : std::nullopt;
}

TEST(Contribution, ADenseOneIsCutWhereTheChunksAre) {
  const std::vector<std::byte> bytes(2500 * 4);
  Contribution contribution{.bytes = {bytes.data(), bytes.size(), nullptr}};
  ASSERT_FALSE(Cut(Meta(2500), &contribution));
  EXPECT_EQ(contribution.PartOf(0).data, bytes.data());
  EXPECT_EQ(contribution.PartOf(1).data, bytes.data() + 4096);
  EXPECT_EQ(contribution.PartOf(1).size, 4096U);
  EXPECT_EQ(contribution.PartOf(2).size, 452U * 4);
}

TEST(Contribution, AnEmptyOneHasOneEmptyPart) {
  Contribution contribution;
  ASSERT_FALSE(Cut(Meta(0), &contribution));
  EXPECT_EQ(contribution.PartOf(0).size, 0U);
}

TEST(Contribution, OfAnotherSizeThanTheKeyIsRefused) {
  const std::vector<std::byte> bytes(2500 * 4);
  for (const int64_t elements : {2499, 2501, 100, 10'000, 0}) {
    Contribution contribution{.bytes = {bytes.data(), bytes.size(), nullptr}};
    EXPECT_EQ(CodeOf(Cut(Meta(elements), &contribution)), Code::kInvalidArgument) << elements;
  }
}

TEST(Contribution, ItsPartsMayNotOverlapOrLeaveBytesOut) {
  const std::vector<std::byte> bytes(2048 * 4);
  for (const size_t middle : {0, 4092, 4100, 8192, 9000}) {
    Contribution contribution{.bytes = {bytes.data(), bytes.size(), nullptr}};
    contribution.ends = {middle, bytes.size()};
    EXPECT_TRUE(Cut(Meta(2048), &contribution)) << middle;
  }
}

TEST(Judge, AnEncodingThatIsNotThereIsNamed) {
  for (int encoding = 1; encoding < 256; ++encoding) {
    const auto there = static_cast<Encoding>(encoding);
    if (there <= Encoding::kF32) continue;
    const auto error = Judge(Meta(10), 0, static_cast<Encoding>(encoding), 0, 40);
    ASSERT_EQ(CodeOf(error), Code::kUnimplemented);
    const std::string name = "encoding " + NameOf(static_cast<Encoding>(encoding)) + " is not";
    EXPECT_NE(std::string(error->what()).find(name), std::string::npos) << error->what();
  }
  EXPECT_EQ(NameOf(Encoding::k2Bit), "2bit");
  EXPECT_EQ(NameOf(Encoding{200}), "200");
}

TEST(Judge, APartHasTheSizeOfItsChunkAndNoParameter) {
  EXPECT_FALSE(Judge(Meta(1500), 1, Encoding::kDense, 0, 476 * 4));
  EXPECT_EQ(CodeOf(Judge(Meta(1500), 1, Encoding::kDense, 0, 4096)), Code::kFailedPrecondition);
  EXPECT_EQ(CodeOf(Judge(Meta(1500), 1, Encoding::kDense, 1, 476 * 4)), Code::kInvalidArgument);
}

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

TEST(Judge, APartInAnEncodingHasTheSizeOfItsElements) {
  const std::pair<Encoding, size_t> sizes[] = {{Encoding::kF16, 952},
                                               {Encoding::kBf16, 952},
                                               {Encoding::kInt8, 480},
                                               {Encoding::k2Bit, 120},
                                               {Encoding::k1Bit, 60}};
  for (const auto& [encoding, bytes] : sizes) {
    const uint32_t param =
        encoding == Encoding::k2Bit || encoding == Encoding::k1Bit ? Bits(0.5F) : 0;
    EXPECT_FALSE(Judge(Meta(1500), 1, encoding, param, bytes)) << NameOf(encoding);
    for (const size_t wrong : {size_t{0}, bytes - 1, bytes + 1, bytes + 4, size_t{476 * 4}}) {
      EXPECT_EQ(CodeOf(Judge(Meta(1500), 1, encoding, param, wrong)), Code::kFailedPrecondition)
          << NameOf(encoding) << " " << wrong;
    }
  }
}

TEST(Judge, AThresholdIsFiniteAndThatOf2BitAboveZero) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float wrong : {0.0F, -1.0F, infinity, std::nanf("")}) {
    EXPECT_EQ(CodeOf(Judge(Meta(16), 0, Encoding::k2Bit, Bits(wrong), 4)), Code::kInvalidArgument);
  }
  EXPECT_FALSE(Judge(Meta(16), 0, Encoding::k1Bit, Bits(-1), 4));
  EXPECT_EQ(CodeOf(Judge(Meta(16), 0, Encoding::k1Bit, Bits(infinity), 4)), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf(Judge(Meta(16), 0, Encoding::kInt8, 1, 20)), Code::kInvalidArgument);
}

TEST(Judge, OnlyValuesThatAreComputedInF32AreEncoded) {
  for (const DType dtype : {DType::kF64, DType::kI32, DType::kBool, DType::kI8}) {
    KeyMeta meta = Meta(16);
    meta.dtype = dtype;
    EXPECT_EQ(CodeOf(Judge(meta, 0, Encoding::kF16, 0, 32)), Code::kInvalidArgument);
  }
  KeyMeta half = Meta(16);
  half.dtype = DType::kF16;
  EXPECT_FALSE(Judge(half, 0, Encoding::k2Bit, Bits(1), 4));
}

TEST(Judge, OnlySumsOf16BitValuesAreFloat32) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    KeyMeta meta = Meta(1500);
    meta.dtype = dtype;
    EXPECT_FALSE(Judge(meta, 1, Encoding::kF32, 0, 476 * 4));
    EXPECT_EQ(CodeOf(Judge(meta, 1, Encoding::kF32, 0, 476 * 2)), Code::kFailedPrecondition);
    EXPECT_EQ(CodeOf(Judge(meta, 1, Encoding::kF32, 1, 476 * 4)), Code::kInvalidArgument);
    EXPECT_FALSE(Judge(meta, 1, Encoding::kRuns, kWideValues, 8 + 476 * 12));
    EXPECT_EQ(CodeOf(Judge(meta, 1, Encoding::kRuns, kWideValues, 8 + 476 * 12 + 4)),
              Code::kFailedPrecondition);
    EXPECT_EQ(CodeOf(Judge(meta, 1, Encoding::kRuns, 0, 8 + 476 * 12)), Code::kFailedPrecondition);
    EXPECT_EQ(CodeOf(Judge(meta, 1, Encoding::kRuns, 2, 8)), Code::kInvalidArgument);
    EXPECT_EQ(CodeOf(Judge(meta, 1, Encoding::kDense, kWideValues, 476 * 4)),
              Code::kInvalidArgument);
  }
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kI32, DType::kI16, DType::kBool}) {
    KeyMeta meta = Meta(1500);
    meta.dtype = dtype;
    EXPECT_EQ(CodeOf(Judge(meta, 1, Encoding::kF32, 0, 476 * 4)), Code::kInvalidArgument);
    EXPECT_EQ(CodeOf(Judge(meta, 1, Encoding::kRuns, kWideValues, 0)), Code::kInvalidArgument);
  }
}

Part TopK(const std::vector<uint32_t>& positions, std::vector<std::byte>* bytes) {
  bytes->resize(positions.size() * 8);
  if (!positions.empty()) std::memcpy(bytes->data(), positions.data(), positions.size() * 4);
  for (size_t i = 0; i < positions.size(); ++i) {
    const float value = static_cast<float>(i) + 1;
    std::memcpy(bytes->data() + positions.size() * 4 + i * 4, &value, 4);
  }
  return {Encoding::kTopK, 0, {bytes->data(), bytes->size(), nullptr}};
}

TEST(TopKPart, ItsPositionsAscendAndAreTheChunks) {
  std::vector<std::byte> bytes;
  EXPECT_EQ(PositionsOf(TopK({0, 7, 9}, &bytes), 10), (std::vector<uint32_t>{0, 7, 9}));
  EXPECT_TRUE(PositionsOf(TopK({}, &bytes), 10).empty());
  for (const std::vector<uint32_t>& wrong :
       std::vector<std::vector<uint32_t>>{{10}, {3, 3}, {4, 2}, {0, 0xFFFFFFFF}}) {
    EXPECT_THROW(PositionsOf(TopK(wrong, &bytes), 10), Error);
  }
  EXPECT_EQ(CodeOf(Judge(Meta(10), 0, Encoding::kTopK, 0, 88)), Code::kFailedPrecondition);
  EXPECT_EQ(CodeOf(Judge(Meta(10), 0, Encoding::kTopK, 0, 12)), Code::kFailedPrecondition);
  EXPECT_FALSE(Judge(Meta(10), 0, Encoding::kTopK, 0, 80));
}

TEST(TopKPart, ItsValuesAreAddedWhereItSays) {
  std::vector<std::byte> bytes;
  const Part part = TopK({1, 3}, &bytes);
  std::vector<float> target{10, 10, 10, 10};
  AddAt(part, PositionsOf(part, 4), target.data());
  EXPECT_EQ(target, (std::vector<float>{10, 11, 10, 12}));
}

TEST(Judge, APartHasAtMost256MiB) {
  KeyMeta meta = Meta((int64_t{64} << 20) + 1024);
  meta.chunk_elements = (64U << 20) + 1024;
  EXPECT_EQ(CodeOf(Judge(meta, 0, Encoding::kDense, 0, kPartBytesMax + 4096)),
            Code::kResourceExhausted);
  meta.shape = Shape({int64_t{64} << 20});
  EXPECT_FALSE(Judge(meta, 0, Encoding::kDense, 0, kPartBytesMax));
}

Part RunsPart(std::vector<uint32_t> words) {
  auto owner = std::make_shared<std::vector<uint32_t>>(std::move(words));
  return {Encoding::kRuns,
          0,
          {reinterpret_cast<const std::byte*>(owner->data()), owner->size() * 4, owner}};
}

TEST(Runs, ValuesAreAddedWhereTheirRunsAre) {
  const uint32_t one = std::bit_cast<uint32_t>(1.0F);
  const uint32_t two = std::bit_cast<uint32_t>(2.0F);
  const Part part = RunsPart({2, 0, 1, 2, 5, 1, one, two, two});
  const std::vector<codec::Run> runs = RunsOf(part, DType::kF32, 6);
  std::vector<float> sum = {10, 10, 10, 10, 10, 10};
  AddRuns(part, runs, DType::kF32, sum.data());
  EXPECT_EQ(sum, (std::vector<float>{10, 11, 12, 10, 10, 12}));
  EXPECT_TRUE(RunsOf(RunsPart({}), DType::kF32, 6).empty());
}

TEST(Runs, SumsOf16BitValuesAreFloat32) {
  Part part = RunsPart({1, 0, 1, 2, Bits(2049), Bits(1e6F)});
  EXPECT_THROW(RunsOf(part, DType::kF16, 4), Error) << "twice as many bytes";
  part.param = kWideValues;
  std::vector<float> sum(4, 1);
  AddRuns(part, RunsOf(part, DType::kF16, 4), DType::kF16, sum.data());
  EXPECT_EQ(sum, (std::vector<float>{1, 2050, 1000001, 1}));
  EXPECT_THROW(RunsOf(part, DType::kF16, 2), Error);
}

TEST(Runs, WhatIsNoRunOfTheChunkIsRefused) {
  const std::vector<std::vector<uint32_t>> wrong = {
      {1, 0, 6, 1, 0},              // after the end
      {1, 0, 5, 2, 0, 0},           // across the end
      {1, 0, UINT32_MAX, 2, 0, 0},  // around
      {2, 0, 3, 1, 3, 1, 0, 0},     // twice
      {2, 0, 3, 1, 1, 1, 0, 0},     // backwards
      {1, 0, 3, 0},                 // a run of no elements
      {1, 0, 3, 1},                 // no value
      {1, 0, 3, 1, 0, 0},           // one too many
      {0, 0, 0},                    // a value without a run
      {100, 0},                     // more runs than the bytes hold
      {UINT32_MAX, 0},
  };
  for (const auto& words : wrong) {
    EXPECT_THROW(RunsOf(RunsPart(words), DType::kF32, 6), Error) << words[0];
  }
}

}  // namespace
}  // namespace tkv::codec
