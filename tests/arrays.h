// Helpers of the tests: small arrays and error codes.

#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "tkv/error.h"
#include "tkv/ndarray.h"
#include "tkv/ops.h"

namespace tkv::test {

inline NDArray Full(const Shape& shape, double value, DType dtype = DType::kF32,
                    Context context = {}) {
  const NDArray array = NDArray::Empty(shape, dtype, context);
  Fill(array, value);
  return array;
}

inline NDArray Floats(const std::vector<float>& values) {
  return NDArray::FromBytes(values.data(), {static_cast<int64_t>(values.size())}, DType::kF32);
}

template <typename T = float>
std::vector<T> Values(const NDArray& array) {
  const NDArray packed = array.Packed();
  const T* data = static_cast<const T*>(packed.data());
  return {data, data + packed.size()};
}

inline bool SameBytes(const NDArray& a, const NDArray& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

struct Failure {
  std::optional<Code> code;
  std::string message;
};

// Returns the code of the error that `action` throws, or none if it throws nothing.
inline Failure FailureOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

}  // namespace tkv::test

#define EXPECT_FAILS(wanted, action)                                                      \
  do {                                                                                    \
    const auto failure = ::tkv::test::FailureOf([&] { action; });                         \
    EXPECT_EQ(failure.code, std::optional(wanted)) << #action << ": " << failure.message; \
  } while (false)
