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

// An update program and the current values of its hyperparameters.  Thread-safe.  If a
// hyperparameter changes, a store that uses the optimizer applies the new value from the next push
// on.
class TKV_API Optimizer final {
 public:
  // Sets every hyperparameter to the program's default.
  //   multi_precision  float16 and bfloat16 keys keep a float32 master of the value, rounded once
  //                    per push
  //   lazy             true: a push of rows updates only the pushed rows of a key; false: it
  //                    updates all existing rows, with a sum of zero for the others
  explicit Optimizer(Program program, bool multi_precision = false, bool lazy = true);

  // Creates a built-in optimizer by name.  Beside the hyperparameters below, all but "test" have
  // learning_rate, wd, rescale_grad and clip_gradient; "test" has only rescale_grad.  Defaults and
  // formulas are those of MXNet 1.9.1 if it has the optimizer.
  //   name                                hyperparameters                source
  //   "sgd"                                                              Robbins and Monro 1951
  //   "momentum"                          momentum                       Polyak 1964
  //   "nag"                               momentum                       Nesterov 1983
  //   "signsgd", "signum"                 wd_lh; momentum, wd_lh         arXiv 1802.04434
  //   "adam"                              beta1, beta2, epsilon          arXiv 1412.6980
  //   "adamw"                             beta1, beta2, epsilon          arXiv 1711.05101
  //   "adamax"                            beta1, beta2                   arXiv 1412.6980, section 7
  //   "nadam"                             and schedule_decay             Dozat 2016
  //   "adagrad"                           epsilon                        Duchi, Hazan, Singer 2011
  //   "adadelta"                          rho, epsilon                   arXiv 1212.5701
  //   "rmsprop", "rmsprop_centered"       gamma1, epsilon, clip_weights; Tieleman and Hinton 2012;
  //                                       and gamma2                     arXiv 1308.0850
  //   "ftrl"                              lamda1, beta                   McMahan et al. 2013
  //   "ftml"                              beta1, beta2, epsilon          Zheng and Kwok 2017
  //   "lamb"                              beta1, beta2, epsilon,         arXiv 1904.00962
  //                                       lower_bound, upper_bound,
  //                                       bias_correction
  //   "lars"                              momentum, eta, eps,            arXiv 1708.03888
  //                                       momentum_correction, adapt
  //   "lbsgd"                             momentum                       MXNet's, with batch_scale 1
  //   "sgld"                              seed                           Welling and Teh 2011
  //   "dcasgd"                            momentum, lamda                arXiv 1609.08326
  //   "test" (value += rescale_grad sum)
  //
  // lamb, lars and lbsgd need norms.  In a distributed store, a key that is created while one of
  // them is set is stored whole on one server.  clip_gradient and clip_weights default to infinity,
  // which means no clipping.  Here and in SetParam, 0 and negative values do not clip either.
  //   throws  kNotFound        no such built-in
  //           kInvalidArgument no such hyperparameter, or a bound is NaN
  static std::shared_ptr<Optimizer> Create(std::string_view name,
                                           const std::map<std::string, double>& params = {},
                                           bool multi_precision = false, bool lazy = true);

  const Program& program() const noexcept { return program_; }
  bool multi_precision() const noexcept { return multi_precision_; }
  bool lazy() const noexcept { return lazy_; }

  // Get or set a hyperparameter.
  //   throws  kInvalidArgument  the program has no such hyperparameter; see Create
  double param(std::string_view name) const;
  void SetParam(std::string_view name, double value);
  // Multiplies the hyperparameter by `factor` for one key.
  void SetMultiplier(std::string_view param, const KeyView& key, double factor);

  // Returns the value of a scalar of the program by name, as round `t` with `n` contributors
  // computes it for keys without a multiplier.
  //   throws  kInvalidArgument  the program has no such scalar, or it depends on values
  double Scalar(std::string_view name, double t, double n = 1) const;

  // Returns the hyperparameters of one key in the order of program().params().
  std::vector<double> ParamsFor(const KeyView& key) const;

 private:
  size_t IndexOf(std::string_view name) const;
  void CheckNumber(std::string_view name, double value) const;

  const Program program_;
  const bool multi_precision_;
  const bool lazy_;
  bool is_builtin_ = false;
  mutable std::mutex mutex_;
  std::vector<double> values_;
  std::map<Key, std::vector<std::pair<size_t, double>>> multipliers_;
};

// Returns the names that Optimizer::Create accepts.
TKV_API std::vector<std::string> BuiltinOptimizers();

class NDArray;

// Updates `value` once by `grad`, outside a store.
//   shape   value and grad: the same, contiguous; states: one array per state of the program, of
//           the value's shape, float32 for the 16-bit floats, else of the value's dtype, then one
//           float64 per scalar state; master: float32 of the value's shape, or no array; all but
//           the scalar states in one memory, where they are updated
//   throws  kInvalidArgument  a shape, dtype or number of states other than these; value, states or
//           master share memory
TKV_API void ApplyUpdate(const Optimizer& optimizer, const KeyView& key, double round,
                         const NDArray& grad, const NDArray& value, std::span<const NDArray> states,
                         const NDArray& master);

}  // namespace tkv
