#include "tkv/error.h"

#include <cerrno>

#include "base/check.h"
#include "base/logfmt.h"

namespace tkv {

const char* Name(Code code) noexcept {
  switch (code) {
    case Code::kCancelled:
      return "Cancelled";
    case Code::kInvalidArgument:
      return "InvalidArgument";
    case Code::kDeadlineExceeded:
      return "DeadlineExceeded";
    case Code::kNotFound:
      return "NotFound";
    case Code::kAlreadyExists:
      return "AlreadyExists";
    case Code::kResourceExhausted:
      return "ResourceExhausted";
    case Code::kFailedPrecondition:
      return "FailedPrecondition";
    case Code::kAborted:
      return "Aborted";
    case Code::kOutOfRange:
      return "OutOfRange";
    case Code::kUnimplemented:
      return "Unimplemented";
    case Code::kInternal:
      return "Internal";
    case Code::kUnavailable:
      return "Unavailable";
    case Code::kDataLoss:
      return "DataLoss";
    case Code::kUnauthenticated:
      return "Unauthenticated";
  }
  return "Unknown";
}

Code CodeOfSystemError(int error) noexcept {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return Code::kResourceExhausted;
    case EACCES:
    case EPERM:
    case EROFS:
    case ENOTDIR:
    case EISDIR:
      return Code::kFailedPrecondition;
    case ENOENT:
      return Code::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
      return Code::kAlreadyExists;
    default:
      return Code::kUnavailable;
  }
}

Error::Error(Code code, std::string_view message, int system_error)
    : std::runtime_error(Printable(message)), code_(code), system_error_(system_error) {}

void CheckFailed(const char* expression, const char* file, unsigned line) {
  throw Fail(Code::kInternal, "this is a bug in TensorKV: {} is false at {}:{}", expression, file,
             line);
}

}  // namespace tkv
