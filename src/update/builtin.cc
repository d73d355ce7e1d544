#include "update/builtin.h"

#include <array>

#include "base/format.h"

namespace tkv {
namespace {

// `min clip g` and `max minus g` let a NaN gradient through; see kernels::Op.
constexpr std::string_view kSgd = R"(program sgd
param learning_rate 0.01
param wd 0
param rescale_grad 1
param clip_gradient inf
minus = neg clip_gradient
scaled = mul sum rescale_grad
low = min clip_gradient scaled
g = max minus low
decay = mul value wd
total = add g decay
step = mul total learning_rate
w = sub value step
value <- w
)";

constexpr std::string_view kMomentum = R"(program momentum
param learning_rate 0.01
param wd 0
param rescale_grad 1
param clip_gradient inf
param momentum 0.9
state mom
minus = neg clip_gradient
scaled = mul sum rescale_grad
low = min clip_gradient scaled
g = max minus low
decay = mul value wd
total = add g decay
step = mul total learning_rate
kept = mul mom momentum
m = sub kept step
w = add value m
mom <- m
value <- w
)";

constexpr std::string_view kAdam = R"(program adam
param learning_rate 0.001
param wd 0
param rescale_grad 1
param clip_gradient inf
param beta1 0.9
param beta2 0.999
param epsilon 1e-08
state mean
state var
minus = neg clip_gradient
rest1 = sub 1 beta1
rest2 = sub 1 beta2
power1 = pow beta1 t
power2 = pow beta2 t
coef1 = sub 1 power1
coef2 = sub 1 power2
root2 = sqrt coef2
raised = mul learning_rate root2
lr_t = div raised coef1
scaled = mul sum rescale_grad
decay = mul value wd
total = add scaled decay
low = min clip_gradient total
g = max minus low
m1 = mul mean beta1
m2 = mul g rest1
m = add m1 m2
v1 = mul var beta2
square = mul g g
v2 = mul square rest2
v = add v1 v2
root = sqrt v
bottom = add root epsilon
top = mul m lr_t
step = div top bottom
w = sub value step
mean <- m
var <- v
value <- w
)";

constexpr std::string_view kTest = R"(program test
param rescale_grad 1
scaled = mul sum rescale_grad
w = add value scaled
value <- w
)";

struct Builtin {
  std::string_view name;
  std::string_view text;
  kernels::Fused fused;
  std::array<std::string_view, kernels::kFusedScalarsMax> scalars;
};

constexpr std::array<Builtin, 4> kBuiltins = {{
    {"sgd", kSgd, kernels::Fused::kSgd, {"rescale_grad", "clip_gradient", "wd", "learning_rate"}},
    {"momentum",
     kMomentum,
     kernels::Fused::kMomentum,
     {"rescale_grad", "clip_gradient", "wd", "learning_rate", "momentum"}},
    {"adam",
     kAdam,
     kernels::Fused::kAdam,
     {"rescale_grad", "clip_gradient", "wd", "lr_t", "beta1", "rest1", "beta2", "rest2",
      "epsilon"}},
    {"test", kTest, kernels::Fused::kNone, {}},
}};

}  // namespace

std::vector<std::string> BuiltinNames() {
  std::vector<std::string> names;
  names.reserve(kBuiltins.size());
  for (const Builtin& builtin : kBuiltins) names.emplace_back(builtin.name);
  return names;
}

Program BuiltinProgram(std::string_view name) {
  for (const Builtin& builtin : kBuiltins) {
    if (builtin.name == name) return Program::Parse(builtin.text);
  }
  throw Fail(Code::kNotFound, "optimizer '{}': no such built-in; there are {}", name,
             Join(BuiltinNames(), ", "));
}

FusedKernel FusedFor(std::string_view program_text) {
  FusedKernel kernel;
  for (const Builtin& builtin : kBuiltins) {
    if (builtin.fused == kernels::Fused::kNone || builtin.text != program_text) continue;
    kernel.kind = builtin.fused;
    for (std::string_view scalar : builtin.scalars) {
      if (!scalar.empty()) kernel.scalars.push_back(scalar);
    }
  }
  return kernel;
}

}  // namespace tkv
