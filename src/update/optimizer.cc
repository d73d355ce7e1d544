#include "tkv/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/format.h"
#include "base/nearest.h"
#include "update/builtin.h"
#include "update/program_body.h"

namespace tkv {
namespace {

// Returns the clipping bound of a built-in optimizer, where 0 means no clipping.
double ClipBound(double value) {
  return value > 0 ? value : std::numeric_limits<double>::infinity();
}

}  // namespace

Optimizer::Optimizer(Program program, bool multi_precision, bool lazy)
    : program_(std::move(program)), multi_precision_(multi_precision), lazy_(lazy) {
  for (const Program::Param& param : program_.params()) values_.push_back(param.value);
}

std::shared_ptr<Optimizer> Optimizer::Create(std::string_view name,
                                             const std::map<std::string, double>& params,
                                             bool multi_precision, bool lazy) {
  auto optimizer = std::make_shared<Optimizer>(BuiltinProgram(name), multi_precision, lazy);
  optimizer->is_builtin_ = true;
  for (const auto& [param, value] : params) optimizer->SetParam(param, value);
  return optimizer;
}

size_t Optimizer::IndexOf(std::string_view name) const {
  const auto& params = program_.params();
  for (size_t i = 0; i < params.size(); ++i) {
    if (params[i].name == name) return i;
  }
  std::vector<std::string_view> names;
  names.reserve(params.size());
  for (const Program::Param& param : params) names.push_back(param.name);
  const std::string_view nearest = Nearest(name, names);
  throw Fail(Code::kInvalidArgument, "optimizer '{}': no hyperparameter '{}'{}", program_.name(),
             name,
             nearest.empty() ? "; there are " + Join(names, ", ")
                             : Format("; did you mean '{}'?", nearest));
}

// Throws if a hyperparameter is NaN: every element that it touches would become NaN.
void Optimizer::CheckNumber(std::string_view name, double value) const {
  if (!std::isnan(value)) return;
  throw Fail(Code::kInvalidArgument, "optimizer '{}': hyperparameter '{}' is nan", program_.name(),
             name);
}

double Optimizer::param(std::string_view name) const {
  const size_t index = IndexOf(name);
  std::lock_guard lock(mutex_);
  return values_[index];
}

void Optimizer::SetParam(std::string_view name, double value) {
  const size_t index = IndexOf(name);
  CheckNumber(name, value);
  if (is_builtin_ && name.starts_with("clip_")) value = ClipBound(value);
  std::lock_guard lock(mutex_);
  values_[index] = value;
}

void Optimizer::SetMultiplier(std::string_view param, const KeyView& key, double factor) {
  const size_t index = IndexOf(param);
  CheckNumber(param, factor);
  std::lock_guard lock(mutex_);
  auto& factors = multipliers_[Key(key)];
  std::erase_if(factors, [&](const auto& old) { return old.first == index; });
  factors.emplace_back(index, factor);
}

double Optimizer::Scalar(std::string_view name, double t, double n) const {
  const ProgramBody& body = program_.body();
  const auto found = std::ranges::find(body.scalars, name, &ScalarNode::name);
  if (name.empty() || found == body.scalars.end()) {
    throw Fail(Code::kInvalidArgument, "optimizer '{}': no scalar '{}'", program_.name(), name);
  }
  if (found->phase > 0) {
    throw Fail(Code::kInvalidArgument,
               "optimizer '{}': scalar '{}' depends on values, which only an update knows",
               program_.name(), name);
  }
  std::vector<double> values(body.scalars.size());
  std::lock_guard lock(mutex_);
  EvaluateScalars(body, values_.data(), nullptr, t, n, values.data());
  return values[static_cast<size_t>(found - body.scalars.begin())];
}

std::vector<double> Optimizer::ParamsFor(const KeyView& key) const {
  std::lock_guard lock(mutex_);
  std::vector<double> values = values_;
  if (multipliers_.empty()) return values;
  const auto found = multipliers_.find(Key(key));
  if (found == multipliers_.end()) return values;
  for (const auto& [index, factor] : found->second) values[index] *= factor;
  return values;
}

}  // namespace tkv
