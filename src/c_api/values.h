// Conversions of small values of tkv.h to their C++ types.

#pragma once

#include <chrono>
#include <cstdint>

#include "tkv/context.h"
#include "tkv/dtype.h"
#include "tkv/shape.h"
#include "tkv/tkv.h"

namespace tkv::c_api {

//   throws  kInvalidArgument  there is no dtype of that number
DType DTypeOf(tkv_dtype number, const char* verb);
//   throws  kInvalidArgument  there is no device of that number
Context ContextOf(tkv_context context, const char* verb);
tkv_context ToC(const Context& context);
//   throws  kInvalidArgument  a negative rank, or no pointer to so many numbers
Shape ShapeOf(const int64_t* shape, int32_t rank, const char* verb);
// Returns the duration, at most a century.
//   throws  kInvalidArgument  a negative number
std::chrono::nanoseconds Patience(int64_t milliseconds, const char* verb);

}  // namespace tkv::c_api
