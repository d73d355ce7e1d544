#include "c_api/boundary.h"

#include <gtest/gtest.h>

#include "tkv/error.h"

namespace tkv::c_api {

// A struct whose second version has `added`.
struct Grown {
  size_t size;
  uint64_t old;
  uint64_t added;
};
template <>
inline constexpr size_t kFirstBytes<Grown> = offsetof(Grown, added);

namespace {

TEST(Struct, OfAnEarlierVersionHasZeroForWhatItLacks) {
  const Grown given{offsetof(Grown, added), 1, 2};
  const Grown read = Read(&given, "test", "Grown");
  EXPECT_EQ(read.old, 1U);
  EXPECT_EQ(read.added, 0U);
}

TEST(Struct, OfAnEarlierVersionIsWrittenAsFarAsItGoes) {
  Grown out{offsetof(Grown, added), 1, 2};
  Write(Grown{0, 3, 4}, &out);
  EXPECT_EQ(out.size, offsetof(Grown, added));
  EXPECT_EQ(out.old, 3U);
  EXPECT_EQ(out.added, 2U);
}

TEST(Struct, OfASizeThatNoVersionHasIsRefused) {
  for (const size_t size : {size_t{0}, size_t{8}, size_t{17}, size_t{23}, kStructBytesMax + 8}) {
    const Grown given{size, 1, 2};
    EXPECT_THROW(Read(&given, "test", "Grown"), Error) << size;
  }
}

TEST(List, OfMoreThanMemoryCanHaveIsRefused) {
  const Grown one{};
  EXPECT_EQ(List(&one, 1, "test", "the list").size(), 1U);
  EXPECT_THROW(List(&one, SIZE_MAX, "test", "the list"), Error);
  EXPECT_THROW(List<Grown>(nullptr, 1, "test", "the list"), Error);
}

}  // namespace
}  // namespace tkv::c_api
