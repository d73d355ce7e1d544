// An update program with its hyperparameters.

#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tkv/api.h"
#include "tkv/key.h"
#include "tkv/program.h"

namespace tkv {

// Thread-safe.  A store that was given one sees later changes of hyperparameters at the next push.
class TKV_API Optimizer final {
 public:
  // Every hyperparameter starts at the program's default.
  //   multi_precision  float16 and bfloat16 keys keep a float32 master of the value, rounded once
  //                    per push
  explicit Optimizer(Program program, bool multi_precision = false);

  // A built-in by name: "sgd" (learning_rate, wd, rescale_grad, clip_gradient), "momentum" (and
  // momentum), "adam" (and beta1, beta2, epsilon), "test" (rescale_grad).  clip_gradient defaults
  // to infinity: no clipping; 0 and negative ones do not clip either, here and in SetParam.
  //   throws  kNotFound        no such built-in
  //           kInvalidArgument no such hyperparameter, or clip_gradient is NaN
  //   source  SGD: Robbins and Monro 1951; momentum: Polyak 1964; Adam: Kingma and Ba, arXiv
  //           1412.6980; formulas and defaults are those of MXNet 1.9.1
  static std::shared_ptr<Optimizer> Create(std::string_view name,
                                           const std::map<std::string, double>& params = {},
                                           bool multi_precision = false);

  const Program& program() const noexcept { return program_; }
  bool multi_precision() const noexcept { return multi_precision_; }

  //   throws  kInvalidArgument  the program has no such hyperparameter; see Create
  double param(std::string_view name) const;
  void SetParam(std::string_view name, double value);
  // For `key` the hyperparameter counts `factor` times its value.
  void SetMultiplier(std::string_view param, const KeyView& key, double factor);

  // Values for one key in the order of program().params().
  std::vector<double> ParamsFor(const KeyView& key) const;

 private:
  size_t IndexOf(std::string_view name) const;

  const Program program_;
  const bool multi_precision_;
  bool is_builtin_ = false;
  mutable std::mutex mutex_;
  std::vector<double> values_;
  std::map<Key, std::vector<std::pair<size_t, double>>> multipliers_;
};

class NDArray;

// One update of `value` by `grad`, outside a store.
//   shape   value and grad: the same, contiguous; states: one array per state of the program, of
//           the value's shape, float32 for the 16-bit floats, else of the value's dtype; master:
//           float32 of the value's shape, or no array
//   throws  kInvalidArgument  a shape, dtype or number of states other than these; value, states or
//           master share memory
TKV_API void ApplyUpdate(const Optimizer& optimizer, const KeyView& key, double round,
                         const NDArray& grad, const NDArray& value, std::span<const NDArray> states,
                         const NDArray& master);

}  // namespace tkv
