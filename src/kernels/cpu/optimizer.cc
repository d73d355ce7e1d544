#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cc"
#include <cmath>
#include "hwy/foreach_target.h"

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace tkv::kernels {
namespace HWY_NAMESPACE {

// Computes min(clip, g), then max(-clip, .): a NaN in g stays.
template <class V>
HWY_INLINE V Clip(V g, V clip, V minus_clip) {
  const V low = hn::IfThenElse(hn::Lt(clip, g), clip, g);
  return hn::IfThenElse(hn::Gt(minus_clip, low), minus_clip, low);
}

// Runs `step(tag, i)` over whole vectors, and then with a one-lane tag over the rest, so that all
// elements have the same operations.
template <typename T, class Step>
HWY_INLINE void ForEachVector(size_t count, const Step& step) {
  const hn::ScalableTag<T> tag;
  const size_t lanes = hn::Lanes(tag);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) step(tag, i);
  const hn::CappedTag<T, 1> one;
  for (; i < count; ++i) step(one, i);
}

template <typename T>
struct Scalars {
  T rescale, clip, wd, lr, x, one_minus_x, y, one_minus_y, epsilon, root;
};

template <typename T>
void Sgd(const Scalars<T>& s, const T* grad, T* value, size_t count) {
  ForEachVector<T>(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto clip = hn::Set(tag, s.clip);
    const auto w = hn::LoadU(tag, value + i);
    const auto g =
        Clip(hn::Mul(hn::LoadU(tag, grad + i), hn::Set(tag, s.rescale)), clip, hn::Neg(clip));
    const auto step = hn::Mul(hn::Add(g, hn::Mul(w, hn::Set(tag, s.wd))), hn::Set(tag, s.lr));
    hn::StoreU(hn::Sub(w, step), tag, value + i);
  });
}

template <typename T>
void Momentum(const Scalars<T>& s, const T* grad, T* value, T* mom, size_t count) {
  ForEachVector<T>(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto clip = hn::Set(tag, s.clip);
    const auto w = hn::LoadU(tag, value + i);
    const auto g =
        Clip(hn::Mul(hn::LoadU(tag, grad + i), hn::Set(tag, s.rescale)), clip, hn::Neg(clip));
    const auto step = hn::Mul(hn::Add(g, hn::Mul(w, hn::Set(tag, s.wd))), hn::Set(tag, s.lr));
    const auto m = hn::Sub(hn::Mul(hn::LoadU(tag, mom + i), hn::Set(tag, s.x)), step);
    hn::StoreU(m, tag, mom + i);
    hn::StoreU(hn::Add(w, m), tag, value + i);
  });
}

template <typename T>
void Adam(const Scalars<T>& s, const T* grad, T* value, T* mean, T* var, size_t count) {
  ForEachVector<T>(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto clip = hn::Set(tag, s.clip);
    const auto w = hn::LoadU(tag, value + i);
    const auto scaled = hn::Mul(hn::LoadU(tag, grad + i), hn::Set(tag, s.rescale));
    const auto g = Clip(hn::Add(scaled, hn::Mul(w, hn::Set(tag, s.wd))), clip, hn::Neg(clip));
    const auto m = hn::Add(hn::Mul(hn::LoadU(tag, mean + i), hn::Set(tag, s.x)),
                           hn::Mul(g, hn::Set(tag, s.one_minus_x)));
    const auto v = hn::Add(hn::Mul(hn::LoadU(tag, var + i), hn::Set(tag, s.y)),
                           hn::Mul(hn::Mul(g, g), hn::Set(tag, s.one_minus_y)));
    hn::StoreU(m, tag, mean + i);
    hn::StoreU(v, tag, var + i);
    const auto step =
        hn::Div(hn::Mul(m, hn::Set(tag, s.lr)), hn::Add(hn::Sqrt(v), hn::Set(tag, s.epsilon)));
    hn::StoreU(hn::Sub(w, step), tag, value + i);
  });
}

template <typename T>
void AdamW(const Scalars<T>& s, const T* grad, T* value, T* mean, T* var, size_t count) {
  ForEachVector<T>(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto clip = hn::Set(tag, s.clip);
    const auto w = hn::LoadU(tag, value + i);
    const auto g =
        Clip(hn::Mul(hn::LoadU(tag, grad + i), hn::Set(tag, s.rescale)), clip, hn::Neg(clip));
    const auto m = hn::Add(hn::Mul(hn::LoadU(tag, mean + i), hn::Set(tag, s.x)),
                           hn::Mul(g, hn::Set(tag, s.one_minus_x)));
    const auto v = hn::Add(hn::Mul(hn::LoadU(tag, var + i), hn::Set(tag, s.y)),
                           hn::Mul(hn::Mul(g, g), hn::Set(tag, s.one_minus_y)));
    hn::StoreU(m, tag, mean + i);
    hn::StoreU(v, tag, var + i);
    const auto corrected = hn::Div(hn::Sqrt(v), hn::Set(tag, s.root));
    const auto step =
        hn::Div(hn::Mul(m, hn::Set(tag, s.lr)), hn::Add(corrected, hn::Set(tag, s.epsilon)));
    hn::StoreU(hn::Sub(hn::Mul(w, hn::Set(tag, s.wd)), step), tag, value + i);
  });
}

template <typename T>
void AdaGrad(const Scalars<T>& s, const T* grad, T* value, T* history, size_t count) {
  ForEachVector<T>(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto clip = hn::Set(tag, s.clip);
    const auto w = hn::LoadU(tag, value + i);
    const auto g =
        Clip(hn::Mul(hn::LoadU(tag, grad + i), hn::Set(tag, s.rescale)), clip, hn::Neg(clip));
    const auto h = hn::Add(hn::LoadU(tag, history + i), hn::Mul(g, g));
    hn::StoreU(h, tag, history + i);
    const auto ratio = hn::Div(g, hn::Sqrt(hn::Add(h, hn::Set(tag, s.x))));
    const auto step = hn::Mul(hn::Add(ratio, hn::Mul(w, hn::Set(tag, s.wd))), hn::Set(tag, s.lr));
    hn::StoreU(hn::Sub(w, step), tag, value + i);
  });
}

template <typename T>
void UpdateTyped(Fused kind, const double* scalars, size_t scalar_count, const void* grad,
                 void* value, void* const* states, size_t count) {
  T rounded[kFusedScalarsMax] = {};
  for (size_t i = 0; i < scalar_count; ++i) rounded[i] = static_cast<T>(scalars[i]);
  const Scalars<T> s{rounded[0], rounded[1], rounded[2], rounded[3], rounded[4],
                     rounded[5], rounded[6], rounded[7], rounded[8], rounded[9]};
  const auto* g = static_cast<const T*>(grad);
  auto* w = static_cast<T*>(value);
  switch (kind) {
    case Fused::kNone:
      return;
    case Fused::kSgd:
      return Sgd<T>(s, g, w, count);
    case Fused::kMomentum:
      return Momentum<T>(s, g, w, static_cast<T*>(states[0]), count);
    case Fused::kAdam:
      return Adam<T>(s, g, w, static_cast<T*>(states[0]), static_cast<T*>(states[1]), count);
    case Fused::kAdamW:
      return AdamW<T>(s, g, w, static_cast<T*>(states[0]), static_cast<T*>(states[1]), count);
    case Fused::kAdaGrad:
      return AdaGrad<T>(s, g, w, static_cast<T*>(states[0]), count);
  }
}

void UpdateDispatch(Fused kind, DType dtype, const double* scalars, size_t scalar_count,
                    const void* grad, void* value, void* const* states, size_t count) {
  if (dtype == DType::kF64) {
    UpdateTyped<double>(kind, scalars, scalar_count, grad, value, states, count);
  } else {
    UpdateTyped<float>(kind, scalars, scalar_count, grad, value, states, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tkv::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tkv::kernels {

TKV_EXPORT(UpdateDispatch);

void UpdateFused(Fused kind, DType dtype, std::span<const double> scalars, const void* grad,
                 void* value, void* const* states, size_t count) {
  TKV_DISPATCH(UpdateDispatch)
  (kind, dtype, scalars.data(), scalars.size(), grad, value, states, count);
}

}  // namespace tkv::kernels
#endif
