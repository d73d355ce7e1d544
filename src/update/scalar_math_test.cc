// Compares the functions of scalars with the C library in long double.

#include "update/scalar_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/random.h"

namespace tkv {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns the error of a result in units in the last place.
double Ulps(double result, long double truth) {
  const double near = static_cast<double>(truth);
  const double unit = std::nextafter(std::fabs(near), kInfinity) - std::fabs(near);
  return static_cast<double>(std::fabs(result - truth) / unit);
}

double Between(Random* random, double low, double high) {
  return low + (high - low) * static_cast<double>(random->Between(0, 1 << 30)) / (1 << 30);
}

TEST(ScalarMath, ExpAndLogAreWithinTwoUnits) {
  Random random(1);
  for (int i = 0; i < 100000; ++i) {
    const double x = Between(&random, -700, 700);
    EXPECT_LE(Ulps(Exp(x), std::exp(static_cast<long double>(x))), 2) << x;
    const double y = std::exp(Between(&random, -300, 300));
    EXPECT_LE(Ulps(Log(y), std::log(static_cast<long double>(y))), 2) << y;
    const double near_one = Between(&random, 0.5, 2);
    EXPECT_LE(Ulps(Log(near_one), std::log(static_cast<long double>(near_one))), 2) << near_one;
  }
}

TEST(ScalarMath, CosIsWithinItsBound) {
  Random random(2);
  for (double far : {1.0, 4.0, 100.0, 1e6}) {
    for (int i = 0; i < 50000; ++i) {
      const double x = Between(&random, -far, far);
      EXPECT_LE(std::fabs(Cos(x) - std::cos(static_cast<long double>(x))), 2e-15L) << x;
    }
  }
  EXPECT_EQ(Cos(0), 1);
  EXPECT_EQ(Cos(3.141592653589793), -1);
}

TEST(ScalarMath, PowersOfFractionsAreWithinTheirBound) {
  Random random(3);
  for (int i = 0; i < 50000; ++i) {
    const double base = Between(&random, 0.01, 4);
    const double exponent = Between(&random, -40, 40);
    const long double truth = std::pow(static_cast<long double>(base), exponent);
    EXPECT_LE(std::fabs(Power(base, exponent) / truth - 1), 1e-13L) << base << " " << exponent;
  }
  EXPECT_EQ(Power(0.5, 10), 0x1p-10);
  EXPECT_EQ(Power(2, -3), 0.125);
  EXPECT_EQ(Power(0, 0), 1);
}

TEST(ScalarMath, WhatHasNoValueIsNan) {
  for (double x : {-1.0, -kInfinity, std::nan("")}) {
    EXPECT_TRUE(std::isnan(Log(x)));
    EXPECT_TRUE(std::isnan(Power(x, 0.5)) || x == -kInfinity) << x;
  }
  EXPECT_EQ(Log(0), -kInfinity);
  EXPECT_EQ(Log(kInfinity), kInfinity);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_EQ(Exp(-kInfinity), 0);
  EXPECT_EQ(Exp(710.5), kInfinity);
  EXPECT_GT(Exp(-745), 0);
  EXPECT_TRUE(std::isnan(Exp(std::nan(""))) && std::isnan(Cos(kInfinity)));
  EXPECT_EQ(Power(0, 0.5), 0);
}

}  // namespace
}  // namespace tkv
