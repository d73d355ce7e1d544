#include "update/scalar_math.h"

#include <cmath>
#include <cstdint>
#include <limits>

namespace tkv {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ln 2 in two parts: a product of the first with a whole number below 2^11 is exact.
constexpr double kLn2High = 0x1.62e42fefa38p-1;
constexpr double kLn2Low = 0x1.ef35793c7673p-45;

// pi / 2 in three parts of 33 bits and the rest.
constexpr double kHalfPi1 = 0x1.921fb544p+0;
constexpr double kHalfPi2 = 0x1.0b4611a6p-34;
constexpr double kHalfPi3 = 0x1.3198a2e037073p-69;

// Computes cos(x) for |x| <= pi / 4 by its Taylor series around 0, whose next term is below 1e-17.
double CosOfSmall(double x) {
  const double y = x * x;
  double sum = 0;
  for (int k = 16; k >= 2; k -= 2) sum = (sum + 1) * (-y / (k * (k - 1)));
  return 1 + sum;
}

double SinOfSmall(double x) {
  const double y = x * x;
  double sum = 0;
  for (int k = 17; k >= 3; k -= 2) sum = (sum + 1) * (-y / (k * (k - 1)));
  return x + x * sum;
}

}  // namespace

double Exp(double x) {
  if (std::isnan(x)) return x;
  if (x > 710) return kInfinity;
  if (x < -746) return 0;
  const double whole = std::floor(x / (kLn2High + kLn2Low) + 0.5);
  const double rest = (x - whole * kLn2High) - whole * kLn2Low;  // |rest| <= ln 2 / 2
  double sum = 0;
  for (int k = 14; k >= 2; --k) sum = (sum + 1) * (rest / k);
  // Scales in two steps: 2^whole may be out of range although the result is not.
  const int half = static_cast<int>(whole) / 2;
  const double result = 1 + (rest + rest * sum);
  return std::ldexp(std::ldexp(result, half), static_cast<int>(whole) - half);
}

double Log(double x) {
  if (std::isnan(x) || x < 0) return kNan;
  if (x == 0) return -kInfinity;
  if (x == kInfinity) return x;
  int exponent = 0;
  double part = std::frexp(x, &exponent);  // [0.5, 1)
  if (part < 0x1.6a09e667f3bcdp-1) {       // to [sqrt(1/2), sqrt(2))
    part *= 2;
    --exponent;
  }
  // log((1 + s) / (1 - s)) = 2 (s + s^3 / 3 + s^5 / 5 + ...)
  const double s = (part - 1) / (part + 1);
  const double y = s * s;
  double sum = 0;
  for (int k = 23; k >= 3; k -= 2) sum = y * (sum + 1.0 / k);
  return exponent * kLn2High + (exponent * kLn2Low + 2 * (s + s * sum));
}

double Cos(double x) {
  if (std::isnan(x) || std::fabs(x) > 1e9) return kNan;
  const double quarters = std::floor(x / (kHalfPi1 + kHalfPi2) + 0.5);
  const double rest = ((x - quarters * kHalfPi1) - quarters * kHalfPi2) - quarters * kHalfPi3;
  switch (static_cast<int64_t>(quarters) & 3) {
    case 0:
      return CosOfSmall(rest);
    case 1:
      return -SinOfSmall(rest);
    case 2:
      return -CosOfSmall(rest);
    default:
      return SinOfSmall(rest);
  }
}

double Power(double base, double exponent) {
  if (std::isnan(exponent)) return exponent;
  if (exponent != std::floor(exponent) || std::fabs(exponent) > 0x1p53) {
    return Exp(exponent * Log(base));
  }
  double result = 1;
  double square = base;
  for (auto left = static_cast<uint64_t>(std::fabs(exponent)); left > 0; left >>= 1) {
    if ((left & 1) != 0) result *= square;
    square *= square;
  }
  return exponent < 0 ? 1 / result : result;
}

}  // namespace tkv
