// The one exception type of TensorKV and its closed list of codes.

#pragma once

#include <stdexcept>
#include <string_view>

#include "tkv/api.h"

namespace tkv {

// The numbers are those of gRPC's status codes.  // wire value: never renumber
enum class Code : int {
  kCancelled = 1,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// The code's name without the `k`: "InvalidArgument".
TKV_API const char* Name(Code code) noexcept;

// Returns the code of the error of a call on a file that has failed with this errno.
TKV_API Code CodeOfSystemError(int error) noexcept;

// The exception that an operation throws if a user, peer, disk, device or network makes it fail.
// The operation has then changed nothing.  Its message reads `verb 'key': what was found, what was
// wanted`.
class TKV_API Error : public std::runtime_error {
 public:
  // Replaces bytes of the message that are not UTF-8, and control characters except \n and \t, by
  // \xNN.
  //   system_error  the errno of a call on a file or folder that failed; 0: none is the cause
  Error(Code code, std::string_view message, int system_error = 0);
  Code code() const noexcept { return code_; }
  int system_error() const noexcept { return system_error_; }

  // Returns this error with another message.
  Error WithMessage(std::string_view message) const { return {code_, message, system_error_}; }

 private:
  Code code_;
  int system_error_;
};

}  // namespace tkv
