#include "transport/socket/input_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace tkv {
namespace {

// Adds bytes that count up from `first`.
void AddBytes(InputBuffer* buffer, size_t count, uint8_t first) {
  const std::span<std::byte> free = buffer->free();
  ASSERT_LE(count, free.size());
  for (size_t i = 0; i < count; ++i) free[i] = static_cast<std::byte>(first + i);
  buffer->Add(count);
}

TEST(InputBuffer, GivesBytesInTheirOrder) {
  InputBuffer buffer;
  buffer.Enlarge(8);
  AddBytes(&buffer, 5, 1);
  uint8_t value = 0;
  ASSERT_TRUE(buffer.Peek(&value));
  EXPECT_EQ(value, 1);
  ASSERT_TRUE(buffer.Take(&value));
  EXPECT_EQ(value, 1);
  EXPECT_EQ(buffer.bytes().size(), 4U);
  EXPECT_EQ(buffer.bytes()[0], std::byte{2});
  uint64_t large = 77;
  EXPECT_FALSE(buffer.Take(&large)) << "more bytes are needed";
  EXPECT_EQ(large, 77U);
  buffer.Consume(4);
  EXPECT_TRUE(buffer.is_empty());
}

TEST(InputBuffer, MakesRoomBehindTheBytesThatAreLeft) {
  InputBuffer buffer;
  buffer.Enlarge(8);
  AddBytes(&buffer, 8, 1);
  buffer.Consume(6);
  EXPECT_TRUE(buffer.free().empty());
  buffer.MakeRoom();
  EXPECT_EQ(buffer.free().size(), 6U);
  AddBytes(&buffer, 6, 9);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(buffer.bytes()[i], static_cast<std::byte>(7 + i));
}

// A peer that announces a large head and sends little of it costs little memory.
TEST(InputBuffer, GrowsWithTheBytesThatHaveArrived) {
  constexpr size_t kAnnounced = 1000;
  InputBuffer buffer;
  buffer.Enlarge(16);
  buffer.GrowTowards(kAnnounced);
  EXPECT_EQ(buffer.free().size(), 16U) << "it is not full";
  AddBytes(&buffer, 16, 0);
  buffer.GrowTowards(kAnnounced);
  EXPECT_EQ(buffer.free().size(), 16U);
  while (buffer.bytes().size() < kAnnounced) {
    AddBytes(&buffer, buffer.free().size(), 0);
    buffer.GrowTowards(kAnnounced);
  }
  EXPECT_EQ(buffer.bytes().size(), kAnnounced);
  EXPECT_TRUE(buffer.free().empty());
}

TEST(InputBuffer, ShrinksWhenALargeHeadHasBeenConsumed) {
  InputBuffer buffer;
  buffer.Enlarge(size_t{2} << 20);
  AddBytes(&buffer, 100, 0);
  buffer.MakeRoom();
  EXPECT_GT(buffer.free().size(), size_t{1} << 20) << "its bytes are needed";
  buffer.Consume(100);
  buffer.MakeRoom();
  EXPECT_EQ(buffer.free().size(), InputBuffer::kUsualBytes);
}

}  // namespace
}  // namespace tkv
