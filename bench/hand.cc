// Hand-written updates: a loop over the elements for each optimizer, compiled for this machine, for
// one key, without clipping. bench/update.py compares the interpreter's speed with theirs, and
// their results with the store's.

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace {

template <typename Body>
void ForEach(size_t count, const Body& body) {
#pragma omp parallel for simd schedule(static)
  for (size_t i = 0; i < count; ++i) body(i);
}

float Sign(float x) { return static_cast<float>((x > 0) - (x < 0)); }

// Returns the sum of f(i), computed by all threads.
template <typename Body>
double SumOf(size_t count, const Body& f) {
  double sum = 0;
#pragma omp parallel for simd schedule(static) reduction(+ : sum)
  for (size_t i = 0; i < count; ++i) sum += static_cast<double>(f(i));
  return sum;
}

}  // namespace

// s: learning_rate, wd, and up to four numbers that bench/update.py has computed for this update.
extern "C" void hand_nag(const float* g, float* w, float* const* state, size_t n, const float* s) {
  float* const mom = state[0];
  const float lr = s[0], wd = s[1], momentum = s[2];
  ForEach(n, [=](size_t i) {
    const float step = (g[i] + w[i] * wd) * lr;
    mom[i] = mom[i] * momentum - step;
    w[i] += mom[i] * momentum - step;
  });
}

extern "C" void hand_signum(const float* g, float* w, float* const* state, size_t n,
                            const float* s) {
  float* const mom = state[0];
  const float lr = s[0], wd = s[1], momentum = s[2], rest = s[3];
  ForEach(n, [=](size_t i) {
    mom[i] = mom[i] * momentum - (g[i] + w[i] * wd) * rest;
    w[i] += Sign(mom[i]) * lr;
  });
}

extern "C" void hand_rmsprop(const float* g, float* w, float* const* state, size_t n,
                             const float* s) {
  float* const mean = state[0];
  const float lr = s[0], wd = s[1], gamma = s[2], rest = s[3], epsilon = s[4];
  ForEach(n, [=](size_t i) {
    const float total = g[i] + w[i] * wd;
    mean[i] = total * total * rest + mean[i] * gamma;
    w[i] -= total / std::sqrt(mean[i] + epsilon) * lr;
  });
}

extern "C" void hand_rmsprop_centered(const float* g, float* w, float* const* state, size_t n,
                                      const float* s) {
  float *const square = state[0], *const mean = state[1], *const delta = state[2];
  const float lr = s[0], wd = s[1], gamma = s[2], rest = s[3], epsilon = s[4], gamma2 = s[5];
  ForEach(n, [=](size_t i) {
    const float total = g[i] + w[i] * wd;
    square[i] = total * total * rest + square[i] * gamma;
    mean[i] = total * rest + mean[i] * gamma;
    delta[i] = delta[i] * gamma2 - total / std::sqrt(square[i] - mean[i] * mean[i] + epsilon) * lr;
    w[i] += delta[i];
  });
}

extern "C" void hand_adadelta(const float* g, float* w, float* const* state, size_t n,
                              const float* s) {
  float *const square = state[0], *const mean = state[1];
  const float lr = s[0], wd = s[1], rho = s[2], rest = s[3], epsilon = s[4];
  ForEach(n, [=](size_t i) {
    square[i] = square[i] * rho + g[i] * g[i] * rest;
    const float delta = std::sqrt(mean[i] + epsilon) / std::sqrt(square[i] + epsilon) * g[i];
    mean[i] = mean[i] * rho + delta * delta * rest;
    w[i] -= (delta + w[i] * wd) * lr;
  });
}

extern "C" void hand_adamax(const float* g, float* w, float* const* state, size_t n,
                            const float* s) {
  float *const mean = state[0], *const largest = state[1];
  const float lr = s[0], wd = s[1], beta1 = s[2], rest1 = s[3], beta2 = s[4];
  ForEach(n, [=](size_t i) {
    const float total = g[i] + w[i] * wd;
    mean[i] = mean[i] * beta1 + total * rest1;
    largest[i] = std::max(largest[i] * beta2, std::abs(total));
    const float ratio = mean[i] * lr / largest[i];
    w[i] -= largest[i] != 0 ? ratio : 0;
  });
}

extern "C" void hand_nadam(const float* g, float* w, float* const* state, size_t n,
                           const float* s) {
  float *const mean = state[0], *const var = state[1];
  const float lr = s[0], wd = s[1], beta1 = s[2], rest1 = s[3], beta2 = s[4], rest2 = s[5];
  const float scale_g = s[6], scale_m = s[7], coef2 = s[8], epsilon = s[9];
  ForEach(n, [=](size_t i) {
    const float total = g[i] + w[i] * wd;
    mean[i] = mean[i] * beta1 + total * rest1;
    var[i] = var[i] * beta2 + total * total * rest2;
    const float bar = total * scale_g + mean[i] * scale_m;
    w[i] -= bar * lr / (std::sqrt(var[i] / coef2) + epsilon);
  });
}

extern "C" void hand_ftrl(const float* g, float* w, float* const* state, size_t n, const float* s) {
  float *const z = state[0], *const squares = state[1];
  const float lr = s[0], wd = s[1], lamda1 = s[2], beta = s[3];
  ForEach(n, [=](size_t i) {
    const float sum = squares[i] + g[i] * g[i];
    const float root = std::sqrt(sum);
    z[i] += g[i] - (root - std::sqrt(squares[i])) * w[i] / lr;
    squares[i] = sum;
    const float moved = (Sign(z[i]) * lamda1 - z[i]) / ((root + beta) / lr + wd);
    w[i] = std::abs(z[i]) > lamda1 ? moved : 0;
  });
}

extern "C" void hand_ftml(const float* g, float* w, float* const* state, size_t n, const float* s) {
  float *const d = state[0], *const v = state[1], *const z = state[2];
  const float wd = s[1], beta1 = s[2], rest1 = s[3], beta2 = s[4], rest2 = s[5];
  const float scale = s[6], coef2 = s[7], epsilon = s[8];
  ForEach(n, [=](size_t i) {
    const float total = g[i] + w[i] * wd;
    v[i] = v[i] * beta2 + total * total * rest2;
    const float bottom = (std::sqrt(v[i] / coef2) + epsilon) * scale;
    const float sigma = bottom - d[i] * beta1;
    z[i] = z[i] * beta1 + total * rest1 - sigma * w[i];
    d[i] = bottom;
    w[i] = -z[i] / bottom;
  });
}

extern "C" void hand_lamb(const float* g, float* w, float* const* state, size_t n, const float* s) {
  float *const mean = state[0], *const var = state[1];
  const float lr = s[0], wd = s[1], beta1 = s[2], rest1 = s[3], beta2 = s[4], rest2 = s[5];
  const float coef1 = s[6], coef2 = s[7], epsilon = s[8];
  const auto total = [=](size_t i) {
    return mean[i] / coef1 / (std::sqrt(var[i] / coef2) + epsilon) + w[i] * wd;
  };
  ForEach(n, [=](size_t i) {
    mean[i] = mean[i] * beta1 + g[i] * rest1;
    var[i] = var[i] * beta2 + g[i] * g[i] * rest2;
  });
  const double weights = std::sqrt(SumOf(n, [=](size_t i) { return w[i] * w[i]; }));
  const double totals = std::sqrt(SumOf(n, [=](size_t i) { return total(i) * total(i); }));
  const double trust = weights != 0 && totals != 0 ? weights / totals : 1;
  const float rate = static_cast<float>(static_cast<double>(lr) * trust);
  ForEach(n, [=](size_t i) { w[i] -= total(i) * rate; });
}
