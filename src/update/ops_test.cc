#include "tkv/ops.h"

#include <gtest/gtest.h>

#include "tests/arrays.h"

namespace tkv {
namespace {

using test::Floats;
using test::Full;
using test::SameBytes;
using test::Values;

TEST(Ops, ArraysAndScalarsOnBothSides) {
  const NDArray a = Floats({1, 2, 4});
  EXPECT_EQ(Values(Binary(BinaryOp::kAdd, a, a)), (std::vector<float>{2, 4, 8}));
  EXPECT_EQ(Values(Binary(BinaryOp::kSub, 1, a)), (std::vector<float>{0, -1, -3}));
  EXPECT_EQ(Values(Binary(BinaryOp::kDiv, a, 2)), (std::vector<float>{0.5, 1, 2}));
  EXPECT_EQ(Values(Binary(BinaryOp::kGreaterEqual, a, 2)), (std::vector<float>{0, 1, 1}));
  EXPECT_EQ(Values(Unary(UnaryOp::kNeg, a)), (std::vector<float>{-1, -2, -4}));
  EXPECT_EQ(Values(Unary(UnaryOp::kSqrt, Floats({4, 9}))), (std::vector<float>{2, 3}));
}

TEST(Ops, ADigestIsOfAllBytesInOrder) {
  const NDArray a = Floats({1, 2, 3});
  EXPECT_EQ(Digest(a), Digest(Floats({1, 2, 3})));
  EXPECT_NE(Digest(a), Digest(Floats({1, 3, 2})));
  EXPECT_NE(Digest(a), Digest(Floats({1, 2, -3})));
  NDArray large = NDArray::Zeros({3 << 20});
  const uint64_t before = Digest(large);
  EXPECT_EQ(Digest(NDArray::Zeros({3 << 20})), before);
  for (const int64_t at : {int64_t{0}, int64_t{1} << 18, (int64_t{3} << 20) - 1}) {
    const NDArray element = large.Slice(at, at + 1);
    Fill(element, 1e-30);
    EXPECT_NE(Digest(large), before) << at;
    Fill(element, 0);
  }
  EXPECT_EQ(Digest(large), before);
}

TEST(Ops, InPlaceChangesSharedStorage) {
  const NDArray a = Floats({1, 2});
  const NDArray handle = a;
  BinaryInto(BinaryOp::kMul, a, 3, a);
  BinaryInto(BinaryOp::kAdd, a, a, a);
  EXPECT_EQ(Values(handle), (std::vector<float>{6, 12}));
}

TEST(Ops, EveryArithmeticDTypeAdds) {
  for (int i = 0; i < static_cast<int>(DType::kBool); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_TRUE(SameBytes(Binary(BinaryOp::kAdd, Full({5}, 3, dtype), 4), Full({5}, 7, dtype)))
        << Name(dtype);
  }
}

TEST(Ops, LargeArraysOnSeveralThreadsGiveTheSame) {
  const NDArray a = Full({300, 1000}, 2);
  EXPECT_TRUE(SameBytes(Binary(BinaryOp::kMul, a, a), Full({300, 1000}, 4)));
  EXPECT_TRUE(SameBytes(Binary(BinaryOp::kMul, ConvertFloat(a, DType::kF16), 2.5),
                        Full({300, 1000}, 5, DType::kF16)));
}

TEST(Ops, StridedOperandsAndOutputs) {
  std::vector<float> memory = {0, 1, 2, 3, 4, 5};
  const std::vector<int64_t> every_second = {2};
  const NDArray view =
      NDArray::Wrap(memory.data(), {3}, DType::kF32, {}, false, nullptr, every_second);
  BinaryInto(BinaryOp::kAdd, view, 10, view);
  EXPECT_EQ(memory, (std::vector<float>{10, 1, 12, 3, 14, 5}));
  Fill(view, 7);
  EXPECT_EQ(memory, (std::vector<float>{7, 1, 7, 3, 7, 5}));
}

TEST(Ops, AnInputThatOverlapsTheOutputElsewhereIsReadBeforeItIsWritten) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kI8}) {
    const int64_t count = 10000;  // several tiles
    const NDArray a = Full({count}, 1, dtype);
    BinaryInto(BinaryOp::kAdd, a.Slice(1, count), a.Slice(0, count - 1), a.Slice(1, count));
    EXPECT_TRUE(SameBytes(a.Slice(1, count).Copy(), Full({count - 1}, 2, dtype))) << Name(dtype);
    BinaryInto(BinaryOp::kSub, a.Slice(1, count - 1), a.Slice(2, count), a.Slice(1, count - 1));
    EXPECT_TRUE(SameBytes(a.Slice(1, count - 1).Copy(), Full({count - 2}, 0, dtype)))
        << Name(dtype);
  }
}

TEST(Ops, WhatCannotBeIsRefusedAndNothingChanges) {
  const NDArray a = Full({2}, 1);
  EXPECT_FAILS(Code::kInvalidArgument, Binary(BinaryOp::kAdd, a, Full({3}, 1)));
  EXPECT_FAILS(Code::kInvalidArgument, Binary(BinaryOp::kAdd, a, Full({2}, 1, DType::kF64)));
  EXPECT_FAILS(Code::kInvalidArgument, Binary(BinaryOp::kDiv, Full({2}, 1, DType::kI32), 2));
  EXPECT_FAILS(Code::kInvalidArgument, Binary(BinaryOp::kAdd, Full({2}, 1, DType::kI32), 0.5));
  EXPECT_FAILS(Code::kInvalidArgument, Binary(BinaryOp::kAdd, Full({2}, 1, DType::kU8), 256));
  EXPECT_FAILS(Code::kInvalidArgument, Binary(BinaryOp::kAdd, Full({2}, 1, DType::kBool), 1));
  EXPECT_FAILS(Code::kInvalidArgument, ConvertFloat(Full({2}, 1, DType::kI32), DType::kF32));
  const float constant[2] = {1, 1};
  const NDArray locked =
      NDArray::Wrap(const_cast<float*>(constant), {2}, DType::kF32, {}, true, nullptr);
  EXPECT_FAILS(Code::kInvalidArgument, BinaryInto(BinaryOp::kAdd, a, 1, locked));
  EXPECT_FAILS(Code::kInvalidArgument, Fill(locked, 1));
  EXPECT_EQ(Values(a), (std::vector<float>{1, 1}));
}

TEST(Ops, EmptyAndScalarShapes) {
  EXPECT_EQ(Binary(BinaryOp::kAdd, Full({0, 3}, 1), 1).size(), 0);
  EXPECT_EQ(Values(Binary(BinaryOp::kAdd, Full({}, 1), 1)), (std::vector<float>{2}));
}

TEST(Ops, FillRoundsToTheDType) {
  EXPECT_EQ(Values<uint16_t>(Full({1}, 2049, DType::kF16))[0], 0x6800);  // 2048, ties to even
  EXPECT_EQ(Values<uint8_t>(Full({3}, 1, DType::kBool)), (std::vector<uint8_t>{1, 1, 1}));
  EXPECT_FAILS(Code::kInvalidArgument, Full({1}, -1, DType::kU8));
}

TEST(Ops, IntegersOf64BitsAreFilledExactly) {
  const NDArray array = test::Full({3}, 0, DType::kI64);
  for (const int64_t value : {(int64_t{1} << 53) + 1, std::numeric_limits<int64_t>::max(),
                              std::numeric_limits<int64_t>::min()}) {
    FillInteger(array, value);
    EXPECT_EQ(test::Values<int64_t>(array), std::vector<int64_t>(3, value));
  }
  EXPECT_FAILS(Code::kInvalidArgument, FillInteger(test::Full({3}, 0, DType::kI8), 1000));
}

}  // namespace
}  // namespace tkv
