// Computes the functions that programs apply to scalars, in f64.
//
// They use only additions, multiplications and divisions, so that workers and servers get the same
// bits with any C library.

#pragma once

namespace tkv {

// The error is at most 2 units in the last place, unless stated otherwise.

double Exp(double x);

// Returns NaN below 0, minus infinity at 0.
double Log(double x);

// The error is at most 2e-15 for |x| <= 1e6 and grows beyond.  Returns NaN beyond 1e9.
double Cos(double x);

// Computes whole exponents (rounds are whole) by squaring: at most 2 log2(exponent) roundings.
// Computes other exponents as Exp(exponent * Log(base)), with a relative error of at most 1e-13 if
// the result is between 1e-100 and 1e100.
double Power(double base, double exponent);

}  // namespace tkv
