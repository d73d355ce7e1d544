#include "options/environment.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/format.h"
#include "tkv/error.h"

namespace tkv {

const char* Variable(const char* name) {
  const char* const text = std::getenv(name);
  return text != nullptr && *text != '\0' ? text : nullptr;
}

std::string NeedVariable(const char* name, const char* hint) {
  if (const char* const text = Variable(name)) return text;
  throw Fail(Code::kInvalidArgument, "{} is not set, and the job needs it{}", name, hint);
}

int NumberVariable(const char* name, int fallback, int low, int high) {
  const char* const text = Variable(name);
  if (text == nullptr) return fallback;
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < low || value > high) {
    throw Fail(Code::kInvalidArgument, "{}='{}': a whole number from {} to {} is needed", name,
               text, low, high);
  }
  return value;
}

int NeedNumberVariable(const char* name, int low, int high) {
  NeedVariable(name);
  return NumberVariable(name, 0, low, high);
}

}  // namespace tkv
