#include "tkv/dlpack.h"

#include <gtest/gtest.h>

#include "tkv/error.h"

namespace tkv {
namespace {

// A tensor as another framework would export it.
struct Producer {
  float data[6] = {0, 1, 2, 3, 4, 5};
  int64_t shape[2] = {2, 3};
  int64_t strides[2] = {3, 1};
  int deleted = 0;
  DLManagedTensorVersioned managed{};

  Producer() {
    managed.version = {1, 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) {
      ++static_cast<Producer*>(self->manager_ctx)->deleted;
    };
    managed.dl_tensor = {.data = data,
                         .device = {kDLCPU, 0},
                         .ndim = 2,
                         .dtype = {kDLFloat, 32, 1},
                         .shape = shape,
                         .strides = strides,
                         .byte_offset = 0};
  }
  Code Refused() {
    try {
      FromDLPack(&managed);
    } catch (const Error& error) {
      EXPECT_EQ(deleted, 0) << "a refused tensor still belongs to the caller";
      return error.code();
    }
    return Code::kInternal;
  }
};

TEST(DLPack, ImportSharesAndDeletesOnce) {
  Producer producer;
  {
    const NDArray array = FromDLPack(&producer.managed);
    EXPECT_EQ(array.data(), producer.data);
    EXPECT_EQ(array.shape(), (Shape{2, 3}));
    EXPECT_TRUE(array.contiguous());
    EXPECT_FALSE(array.read_only());
    EXPECT_EQ(producer.deleted, 0);
  }
  EXPECT_EQ(producer.deleted, 1);
}

TEST(DLPack, FlagsStridesAndOffsetsAreHonoured) {
  Producer producer;
  producer.managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  producer.managed.dl_tensor.byte_offset = sizeof(float);
  producer.shape[1] = 2;
  const NDArray array = FromDLPack(&producer.managed);
  EXPECT_TRUE(array.read_only());
  EXPECT_FALSE(array.contiguous());
  EXPECT_EQ(static_cast<float*>(array.Packed().data())[2], 4);
}

TEST(DLPack, WhatCannotBeReadIsRefused) {
  Producer producer;
  producer.managed.version.major = 2;
  EXPECT_EQ(producer.Refused(), Code::kInvalidArgument);
  producer.managed.version.major = 1;
  producer.managed.dl_tensor.dtype = {kDLComplex, 128, 1};
  EXPECT_EQ(producer.Refused(), Code::kInvalidArgument);
  producer.managed.dl_tensor.dtype = {kDLFloat, 32, 4};
  EXPECT_EQ(producer.Refused(), Code::kInvalidArgument);
  producer.managed.dl_tensor.dtype = {kDLFloat, 32, 1};
  producer.managed.dl_tensor.device = {kDLCUDA, 0};
  EXPECT_EQ(producer.Refused(), Code::kUnimplemented);
  producer.managed.dl_tensor.device = {kDLCPU, 0};
  producer.shape[0] = -1;
  EXPECT_EQ(producer.Refused(), Code::kInvalidArgument);
  producer.shape[0] = 2;
  producer.strides[0] = int64_t{1} << 62;
  EXPECT_EQ(producer.Refused(), Code::kInvalidArgument);
  producer.strides[0] = 3;
  producer.managed.dl_tensor.ndim = 33;
  EXPECT_EQ(producer.Refused(), Code::kInvalidArgument);
  producer.managed.dl_tensor.ndim = 2;
  producer.managed.dl_tensor.data = nullptr;
  EXPECT_EQ(producer.Refused(), Code::kInvalidArgument);
  EXPECT_THROW(FromDLPack(static_cast<DLManagedTensorVersioned*>(nullptr)), Error);
}

TEST(DLPack, ExportRoundTripsEveryDType) {
  for (int i = 0; i <= static_cast<int>(kLastDType); ++i) {
    const NDArray array = NDArray::Zeros({3, 2}, static_cast<DType>(i));
    const NDArray back = FromDLPack(ToDLPackVersioned(array));
    EXPECT_EQ(back.data(), array.data());
    EXPECT_EQ(back.dtype(), array.dtype());
    EXPECT_TRUE(array.storage()->foreign());
    EXPECT_EQ(FromDLPack(ToDLPack(array), false).shape(), array.shape());
  }
}

TEST(DLPack, TheLegacyFormCannotSayReadOnly) {
  float data[1] = {};
  const NDArray array = NDArray::Wrap(data, {1}, DType::kF32, {}, true, nullptr);
  EXPECT_THROW(ToDLPack(array), Error);
  EXPECT_TRUE(FromDLPack(ToDLPackVersioned(array)).read_only());
}

}  // namespace
}  // namespace tkv
