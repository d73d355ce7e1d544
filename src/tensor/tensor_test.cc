#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <utility>

#include "tensor/strided.h"
#include "tkv/error.h"
#include "tkv/ndarray.h"

namespace tkv {
namespace {

NDArray Iota(const Shape& shape) {
  NDArray array = NDArray::Empty(shape);
  float* data = static_cast<float*>(array.data());
  std::iota(data, data + array.size(), 0.0F);
  return array;
}

std::vector<float> Values(const NDArray& array) {
  const NDArray packed = array.Packed();
  const float* data = static_cast<const float*>(packed.data());
  return {data, data + packed.size()};
}

Code CodeOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return Code::kInternal;
}

TEST(DType, NamesAndSizesAgreeBothWays) {
  for (int i = 0; i <= static_cast<int>(kLastDType); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(DTypeFromName(Name(dtype)), dtype);
    EXPECT_GE(ItemSize(dtype), 1U);
  }
  EXPECT_FALSE(DTypeFromName("complex128"));
  EXPECT_FALSE(DTypeFromName("float8_e8m0"));
}

TEST(DType, WireNumbersAreFixed) {
  EXPECT_EQ(static_cast<int>(DType::kF32), 0);
  EXPECT_EQ(static_cast<int>(DType::kBF16), 3);
  EXPECT_EQ(static_cast<int>(DType::kBool), 9);
}

TEST(Shape, PrintsAsPythonDoes) {
  EXPECT_EQ(Shape().ToString(), "()");
  EXPECT_EQ((Shape{3}).ToString(), "(3,)");
  EXPECT_EQ((Shape{2, 0, 5}).ToString(), "(2, 0, 5)");
}

TEST(Shape, SizesAre64BitAndZeroIsAllowed) {
  EXPECT_EQ(Shape().size(), 1);
  EXPECT_EQ((Shape{4, 0}).size(), 0);
  EXPECT_EQ((Shape{1 << 20, 1 << 20}).size(), int64_t{1} << 40);
}

TEST(Shape, ImpossibleExtentsAreRefused) {
  EXPECT_EQ(CodeOf([] { Shape{2, -1}; }), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf([] { Shape(std::vector<int64_t>(33, 1)); }), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf([] { Shape{int64_t{1} << 40, int64_t{1} << 40, 0}; }), Code::kInvalidArgument);
  EXPECT_EQ(Shape(std::vector<int64_t>(32, 1)).rank(), 32);
}

TEST(Context, GpuWithoutGpuSupportIsUnimplemented) {
  EXPECT_EQ(CodeOf([] { NDArray::Zeros({2}, DType::kF32, Context::Gpu(1)); }),
            Code::kUnimplemented);
  EXPECT_EQ(CodeOf([] { NDArray::Zeros({2}, DType::kF32, Context::Cpu(-1)); }),
            Code::kInvalidArgument);
  EXPECT_EQ(NDArray::Zeros({2}, DType::kF32, Context::Cpu(7)).context(), Context::Cpu(7));
}

TEST(NDArray, AHandleSharesAndACopyDoesNot) {
  const NDArray a = Iota({3});
  const NDArray handle = a;
  const NDArray copy = a.Copy();
  static_cast<float*>(a.data())[0] = 9;
  EXPECT_EQ(Values(handle)[0], 9);
  EXPECT_EQ(Values(copy)[0], 0);
}

TEST(NDArray, RowsAreViews) {
  const NDArray a = Iota({4, 2});
  EXPECT_EQ(Values(a.At(2)), (std::vector<float>{4, 5}));
  EXPECT_EQ(a.At(2).shape(), (Shape{2}));
  EXPECT_EQ(Values(a.Slice(1, 3)), (std::vector<float>{2, 3, 4, 5}));
  EXPECT_EQ(a.Slice(4, 4).size(), 0);
  a.Slice(1, 2).CopyFrom(a.Slice(3, 4));
  EXPECT_EQ(Values(a.At(1)), (std::vector<float>{6, 7}));
}

TEST(NDArray, RowsOutOfRangeAreRefused) {
  const NDArray a = Iota({4, 2});
  EXPECT_EQ(CodeOf([&] { a.Slice(1, 5); }), Code::kOutOfRange);
  EXPECT_EQ(CodeOf([&] { a.At(4); }), Code::kOutOfRange);
  EXPECT_EQ(CodeOf([&] { Iota({}).At(0); }), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] { a.Reshape({3}); }), Code::kInvalidArgument);
}

TEST(NDArray, MemoryIsAlignedForVectors) {
  for (int64_t count : {0, 1, 17, 1 << 20}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(NDArray::Empty({count}).data()) % 64, 0U);
  }
}

TEST(NDArray, MoreMemoryThanThereIsIsResourceExhausted) {
  EXPECT_EQ(CodeOf([] { NDArray::Empty({int64_t{1} << 50}); }), Code::kResourceExhausted);
  EXPECT_EQ(CodeOf([] { NDArray::Empty({int64_t{1} << 61}); }), Code::kResourceExhausted);
}

TEST(NDArray, StridedViewsPackAndScatter) {
  std::vector<float> memory(12);
  std::iota(memory.begin(), memory.end(), 0.0F);
  const std::vector<int64_t> transposed = {1, 3};
  const NDArray view =
      NDArray::Wrap(memory.data(), {3, 4}, DType::kF32, {}, false, nullptr, transposed);
  EXPECT_FALSE(view.contiguous());
  EXPECT_EQ(Values(view), (std::vector<float>{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}));
  EXPECT_EQ(Values(view.At(1)), (std::vector<float>{1, 4, 7, 10}));
  view.CopyFrom(Iota({3, 4}));
  EXPECT_EQ(memory, (std::vector<float>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
}

TEST(NDArray, NegativeStridesReadBackwards) {
  std::vector<float> memory = {0, 1, 2, 3};
  const std::vector<int64_t> backwards = {-1};
  const NDArray view =
      NDArray::Wrap(memory.data() + 3, {4}, DType::kF32, {}, false, nullptr, backwards);
  EXPECT_EQ(Values(view), (std::vector<float>{3, 2, 1, 0}));
  EXPECT_EQ(view.storage()->data(), memory.data());
  EXPECT_EQ(Values(view.Slice(1, 3)), (std::vector<float>{2, 1}));
}

TEST(NDArray, StridesThatLeaveTheAddressSpaceAreRefused) {
  float memory[1] = {};
  for (const int64_t stride : {-(int64_t{1} << 54), -(int64_t{1} << 55)}) {
    const std::vector<int64_t> strides = {stride};
    EXPECT_EQ(CodeOf([&] { NDArray::Wrap(memory, {2}, DType::kF32, {}, false, nullptr, strides); }),
              Code::kInvalidArgument);
  }
}

TEST(NDArray, AReadOnlyTargetIsRefused) {
  std::vector<float> memory(2);
  const NDArray view = NDArray::Wrap(memory.data(), {2}, DType::kF32, {}, true, nullptr);
  EXPECT_EQ(CodeOf([&] { view.CopyFrom(Iota({2})); }), Code::kInvalidArgument);
}

TEST(NDArray, TheOwnerLivesUntilTheLastView) {
  auto owner = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = owner;
  float memory[4] = {};
  {
    NDArray row;
    {
      const NDArray whole = NDArray::Wrap(memory, {2, 2}, DType::kF32, {}, false, std::move(owner));
      row = whole.At(1);
    }
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
}

// Compares with the addresses of all elements, for every layout of three small axes.
TEST(Strided, ElementsThatShareMemoryAreFoundAndNoOthers) {
  for (int64_t code = 0; code < 4 * 4 * 4 * 11 * 11 * 11; ++code) {
    int64_t rest = code;
    const auto next = [&](int64_t count) { return std::exchange(rest, rest / count) % count; };
    const Shape shape{next(4), next(4), next(4)};
    const Strides strides{next(11) - 5, next(11) - 5, next(11) - 5};
    std::set<int64_t> addresses;
    for (int64_t i = 0; i < shape[0]; ++i) {
      for (int64_t j = 0; j < shape[1]; ++j) {
        for (int64_t k = 0; k < shape[2]; ++k) {
          addresses.insert(i * strides[0] + j * strides[1] + k * strides[2]);
        }
      }
    }
    const bool shares = std::ssize(addresses) < shape.size();
    ASSERT_EQ(HasSharedElements(shape, strides.data()), shares)
        << shape.ToString() << " " << strides[0] << " " << strides[1] << " " << strides[2];
  }
}

// Strides of nearly equal size for which no steps add up to 0; proving it would take millions of
// steps.
TEST(Strided, TheSearchForSharedMemoryEndsAndRefusesNothing) {
  const std::vector<int64_t> dims(6, 50);
  Strides strides;
  for (int64_t power = 1; strides.size() < dims.size(); power *= 101) {
    strides.push_back((int64_t{1} << 50) + power);
  }
  EXPECT_FALSE(HasSharedElements(Shape(dims), strides.data()));
}

TEST(NDArray, ATargetWhoseElementsShareMemoryIsRefused) {
  std::vector<float> memory(4, 1);
  const int64_t strides[] = {0, 1};
  const NDArray expanded =
      NDArray::Wrap(memory.data(), {2, 4}, DType::kF32, {}, false, nullptr, strides);
  EXPECT_EQ(CodeOf([&] { expanded.CopyFrom(Iota({2, 4})); }), Code::kInvalidArgument);
  EXPECT_EQ(memory, std::vector<float>(4, 1));
  EXPECT_EQ(Values(expanded), std::vector<float>(8, 1));
}

}  // namespace
}  // namespace tkv
