#include "number.h"

#include <array>
#include <charconv>

namespace tkv::cli {

std::string NumberText(double number) {
  std::array<char, 32> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  return {digits.data(), end};
}

}  // namespace tkv::cli
