// The scalars of the updates of one call.

#pragma once

#include <span>
#include <utility>
#include <vector>

#include "update/program_body.h"
#include "update/tile_driver.h"

namespace tkv {

// A cache of the scalars of updates.  The scalars of the previous key are reused if their inputs
// are equal.
class KeyScalars final {
 public:
  //   throws  as BindScalars
  const UpdateScalars& Bind(const CompiledUpdate& update, std::vector<double> params,
                            std::span<void* const> states, double round);
  // Returns the parameters of the last Bind.
  const std::vector<double>& params() const { return params_; }

 private:
  // Null: the scalars depend on more inputs and are not reused.
  const CompiledUpdate* update_ = nullptr;
  std::vector<double> params_;
  double round_ = 0;
  UpdateScalars scalars_;
};

inline const UpdateScalars& KeyScalars::Bind(const CompiledUpdate& update,
                                             std::vector<double> params,
                                             std::span<void* const> states, double round) {
  if (update_ == &update && round_ == round && AreSameBits(params_, params)) return scalars_;
  scalars_ = BindScalars(update, params, states, round, 1);
  params_ = std::move(params);
  round_ = round;
  update_ = update.program.body().scalar_states.empty() ? &update : nullptr;
  return scalars_;
}

}  // namespace tkv
