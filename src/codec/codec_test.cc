#include "codec/codec.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(contribution.Part(0).data, bytes.data());
  EXPECT_EQ(contribution.Part(1).data, bytes.data() + 4096);
  EXPECT_EQ(contribution.Part(1).size, 4096U);
  EXPECT_EQ(contribution.Part(2).size, 452U * 4);
}

TEST(Contribution, AnEmptyOneHasOneEmptyPart) {
  Contribution contribution;
  ASSERT_FALSE(Cut(Meta(0), &contribution));
  EXPECT_EQ(contribution.Part(0).size, 0U);
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

TEST(Judge, APartHasAtMost256MiB) {
  KeyMeta meta = Meta((int64_t{64} << 20) + 1024);
  meta.chunk_elements = (64U << 20) + 1024;
  EXPECT_EQ(CodeOf(Judge(meta, 0, Encoding::kDense, 0, kPartBytesMax + 4096)),
            Code::kResourceExhausted);
  meta.shape = Shape({int64_t{64} << 20});
  EXPECT_FALSE(Judge(meta, 0, Encoding::kDense, 0, kPartBytesMax));
}

}  // namespace
}  // namespace tkv::codec
