// The functions of scalars that programs have, in f64.
//
// Written with additions, multiplications and divisions alone, so that workers and servers compute
// the same bits whatever C library they have.

#pragma once

namespace tkv {

// Each is within 2 units in the last place, but for what is said.

double Exp(double x);

// NaN below 0, minus infinity at 0.
double Log(double x);

// Within 2e-15 for |x| <= 1e6, the farther the less; NaN beyond 1e9.
double Cos(double x);

// Whole exponents, which is what rounds are, by squaring: at most 2 log2(exponent) roundings.  Others
// as Exp(exponent * Log(base)): within 1e-13 of the result where that is between 1e-100 and 1e100.
double Power(double base, double exponent);

}  // namespace tkv
