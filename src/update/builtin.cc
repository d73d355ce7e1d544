#include "update/builtin.h"

#include <map>

#include "base/format.h"
#include "tkv/optimizer.h"

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

constexpr std::string_view kNag = R"(program nag
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
ahead = mul m momentum
move = sub ahead step
w = add value move
mom <- m
value <- w
)";

// Clipping changes no sign; the param exists because every optimizer has it.
constexpr std::string_view kSignSgd = R"(program signsgd
param learning_rate 0.01
param wd 0
param rescale_grad 1
param clip_gradient inf
param wd_lh 0
both = add wd wd_lh
decay = mul learning_rate both
keep = sub 1 decay
scaled = mul sum rescale_grad
direction = sign scaled
step = mul direction learning_rate
kept = mul value keep
w = sub kept step
value <- w
)";

constexpr std::string_view kSignum = R"(program signum
param learning_rate 0.01
param wd 0
param rescale_grad 1
param clip_gradient inf
param momentum 0.9
param wd_lh 0
state mom
minus = neg clip_gradient
rest = sub 1 momentum
decay_lh = mul learning_rate wd_lh
keep = sub 1 decay_lh
scaled = mul sum rescale_grad
low = min clip_gradient scaled
g = max minus low
decay = mul value wd
total = add g decay
m1 = mul mom momentum
m2 = mul total rest
m = sub m1 m2
direction = sign m
step = mul direction learning_rate
kept = mul value keep
w = add kept step
mom <- m
value <- w
)";

constexpr std::string_view kRmsProp = R"(program rmsprop
param learning_rate 0.001
param wd 0
param rescale_grad 1
param clip_gradient inf
param gamma1 0.9
param epsilon 1e-08
param clip_weights inf
state square_mean
minus = neg clip_gradient
minus_weights = neg clip_weights
rest1 = sub 1 gamma1
scaled = mul sum rescale_grad
decay = mul value wd
total = add scaled decay
low = min clip_gradient total
g = max minus low
square = mul g g
s1 = mul square rest1
s2 = mul square_mean gamma1
s = add s1 s2
under = add s epsilon
root = sqrt under
ratio = div g root
step = mul ratio learning_rate
moved = sub value step
low_w = min clip_weights moved
w = max minus_weights low_w
square_mean <- s
value <- w
)";

constexpr std::string_view kCenteredRmsProp = R"(program rmsprop_centered
param learning_rate 0.001
param wd 0
param rescale_grad 1
param clip_gradient inf
param gamma1 0.9
param gamma2 0.9
param epsilon 1e-08
param clip_weights inf
state square_mean
state mean
state delta
minus = neg clip_gradient
minus_weights = neg clip_weights
rest1 = sub 1 gamma1
scaled = mul sum rescale_grad
decay = mul value wd
total = add scaled decay
low = min clip_gradient total
g = max minus low
square = mul g g
s1 = mul square rest1
s2 = mul square_mean gamma1
s = add s1 s2
m1 = mul g rest1
m2 = mul mean gamma1
m = add m1 m2
mm = mul m m
variance = sub s mm
under = add variance epsilon
root = sqrt under
ratio = div g root
step = mul ratio learning_rate
kept = mul delta gamma2
d = sub kept step
moved = add value d
low_w = min clip_weights moved
w = max minus_weights low_w
square_mean <- s
mean <- m
delta <- d
value <- w
)";

constexpr std::string_view kAdaGrad = R"(program adagrad
param learning_rate 0.01
param wd 0
param rescale_grad 1
param clip_gradient inf
param epsilon 1e-07
state history
minus = neg clip_gradient
scaled = mul sum rescale_grad
low = min clip_gradient scaled
g = max minus low
square = mul g g
h = add history square
under = add h epsilon
root = sqrt under
ratio = div g root
decay = mul value wd
total = add ratio decay
step = mul total learning_rate
w = sub value step
history <- h
value <- w
)";

constexpr std::string_view kAdaDelta = R"(program adadelta
param learning_rate 1
param wd 0
param rescale_grad 1
param clip_gradient inf
param rho 0.9
param epsilon 1e-05
state square_mean
state delta_mean
minus = neg clip_gradient
rest = sub 1 rho
scaled = mul sum rescale_grad
low = min clip_gradient scaled
g = max minus low
square = mul g g
s1 = mul square_mean rho
s2 = mul square rest
s = add s1 s2
delta_under = add delta_mean epsilon
delta_root = sqrt delta_under
under = add s epsilon
root = sqrt under
ratio = div delta_root root
delta = mul ratio g
delta_square = mul delta delta
d1 = mul delta_mean rho
d2 = mul delta_square rest
d = add d1 d2
decay = mul value wd
total = add delta decay
step = mul total learning_rate
w = sub value step
square_mean <- s
delta_mean <- d
value <- w
)";

// If the largest gradient so far is 0, the step is 0, not the NaN of 0 / 0.
constexpr std::string_view kAdamax = R"(program adamax
param learning_rate 0.002
param wd 0
param rescale_grad 1
param clip_gradient inf
param beta1 0.9
param beta2 0.999
state mean
state largest
minus = neg clip_gradient
rest1 = sub 1 beta1
power1 = pow beta1 t
coef1 = sub 1 power1
lr_t = div learning_rate coef1
scaled = mul sum rescale_grad
decay = mul value wd
total = add scaled decay
low = min clip_gradient total
g = max minus low
m1 = mul mean beta1
m2 = mul g rest1
m = add m1 m2
kept = mul largest beta2
size = abs g
u = max kept size
top = mul m lr_t
ratio = div top u
step = select u ratio 0
w = sub value step
mean <- m
largest <- u
value <- w
)";

constexpr std::string_view kAdamW = R"(program adamw
param learning_rate 0.001
param wd 0.01
param rescale_grad 1
param clip_gradient inf
param beta1 0.9
param beta2 0.999
param epsilon 1e-08
state mean
state var
minus = neg clip_gradient
decay = mul learning_rate wd
keep = sub 1 decay
rest1 = sub 1 beta1
rest2 = sub 1 beta2
power1 = pow beta1 t
power2 = pow beta2 t
coef1 = sub 1 power1
coef2 = sub 1 power2
root2 = sqrt coef2
lr_t = div learning_rate coef1
scaled = mul sum rescale_grad
low = min clip_gradient scaled
g = max minus low
m1 = mul mean beta1
m2 = mul g rest1
m = add m1 m2
v1 = mul var beta2
square = mul g g
v2 = mul square rest2
v = add v1 v2
root = sqrt v
corrected = div root root2
bottom = add corrected epsilon
top = mul m lr_t
step = div top bottom
kept = mul value keep
w = sub kept step
mean <- m
var <- v
value <- w
)";

constexpr std::string_view kNadam = R"(program nadam
param learning_rate 0.001
param wd 0
param rescale_grad 1
param clip_gradient inf
param beta1 0.9
param beta2 0.999
param epsilon 1e-08
param schedule_decay 0.004
state mean
state var
scalar schedule 1
minus = neg clip_gradient
rest1 = sub 1 beta1
rest2 = sub 1 beta2
age = mul t schedule_decay
fade = pow 0.96 age
half = mul fade 0.5
part = sub 1 half
momentum_t = mul beta1 part
t_next = add t 1
age_next = mul t_next schedule_decay
fade_next = pow 0.96 age_next
half_next = mul fade_next 0.5
part_next = sub 1 half_next
momentum_next = mul beta1 part_next
schedule_t = mul schedule momentum_t
schedule_next = mul schedule_t momentum_next
coef_g = sub 1 schedule_t
coef_m = sub 1 schedule_next
rest_g = sub 1 momentum_t
scale_g = div rest_g coef_g
scale_m = div momentum_next coef_m
power2 = pow beta2 t
coef2 = sub 1 power2
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
bar_g = mul g scale_g
bar_m = mul m scale_m
bar = add bar_g bar_m
corrected = div v coef2
root = sqrt corrected
bottom = add root epsilon
top = mul bar learning_rate
step = div top bottom
w = sub value step
schedule <- schedule_t
mean <- m
var <- v
value <- w
)";

constexpr std::string_view kFtrl = R"(program ftrl
param learning_rate 0.1
param wd 0
param rescale_grad 1
param clip_gradient inf
param lamda1 0.01
param beta 1
state z
state squares
minus = neg clip_gradient
scaled = mul sum rescale_grad
low = min clip_gradient scaled
g = max minus low
square = mul g g
s = add squares square
root = sqrt s
old_root = sqrt squares
growth = sub root old_root
shift = mul growth value
shift_lr = div shift learning_rate
change = sub g shift_lr
z1 = add z change
direction = sign z1
soft = mul direction lamda1
top = sub soft z1
spread = add root beta
spread_lr = div spread learning_rate
bottom = add spread_lr wd
ratio = div top bottom
size = abs z1
active = gt size lamda1
w = mul ratio active
z <- z1
squares <- s
value <- w
)";

constexpr std::string_view kFtml = R"(program ftml
param learning_rate 0.01
param wd 0
param rescale_grad 1
param clip_gradient inf
param beta1 0.6
param beta2 0.999
param epsilon 1e-08
state d
state v
state z
minus = neg clip_gradient
rest1 = sub 1 beta1
rest2 = sub 1 beta2
power1 = pow beta1 t
power2 = pow beta2 t
coef1 = sub 1 power1
coef2 = sub 1 power2
scale = div coef1 learning_rate
scaled = mul sum rescale_grad
decay = mul value wd
total = add scaled decay
low = min clip_gradient total
g = max minus low
square = mul g g
v1 = mul v beta2
v2 = mul square rest2
v3 = add v1 v2
corrected = div v3 coef2
root = sqrt corrected
bottom = add root epsilon
d1 = mul bottom scale
d2 = mul d beta1
sigma = sub d1 d2
z1 = mul z beta1
z2 = mul g rest1
z3 = add z1 z2
z4 = mul sigma value
z5 = sub z3 z4
opposite = neg z5
w = div opposite d1
d <- d1
v <- v3
z <- z5
value <- w
)";

// Uses the norms of the whole weight and of the whole step, which already includes the weight
// decay.
constexpr std::string_view kLamb = R"(program lamb
param learning_rate 0.001
param wd 0
param rescale_grad 1
param clip_gradient inf
param beta1 0.9
param beta2 0.999
param epsilon 1e-06
param lower_bound 0
param upper_bound inf
param bias_correction 1
state mean
state var
minus = neg clip_gradient
rest1 = sub 1 beta1
rest2 = sub 1 beta2
power1 = pow beta1 t
power2 = pow beta2 t
less1 = sub 1 power1
less2 = sub 1 power2
coef1 = select bias_correction less1 1
coef2 = select bias_correction less2 1
scaled = mul sum rescale_grad
low = min clip_gradient scaled
g = max minus low
m1 = mul mean beta1
m2 = mul g rest1
m = add m1 m2
v1 = mul var beta2
square = mul g g
v2 = mul square rest2
v = add v1 v2
m_hat = div m coef1
v_hat = div v coef2
root = sqrt v_hat
bottom = add root epsilon
move = div m_hat bottom
decay = mul value wd
total = add move decay
weights = mul value value
weight_sum = reduce_sum weights
weight_root = sqrt weight_sum
weight_low = max lower_bound weight_root
weight_norm = min upper_bound weight_low
totals = mul total total
total_sum = reduce_sum totals
total_norm = sqrt total_sum
is_weight = ne weight_norm 0
is_total = ne total_norm 0
both = mul is_weight is_total
quotient = div weight_norm total_norm
trust = select both quotient 1
rate = mul learning_rate trust
step = mul total rate
w = sub value step
mean <- m
var <- v
value <- w
)";

// `adapt` is 0 for keys whose rate depends on no norm.  The momentum is rescaled when the learning
// rate changes.
constexpr std::string_view kLars = R"(program lars
param learning_rate 0.01
param wd 0
param rescale_grad 1
param clip_gradient inf
param momentum 0
param eta 0.001
param eps 0
param momentum_correction 1
param adapt 1
state mom
scalar rate_before 0
minus = neg clip_gradient
weights = mul value value
weight_sum = reduce_sum weights
weight_norm = sqrt weight_sum
rescaled = mul sum rescale_grad
grads = mul rescaled rescaled
grad_sum = reduce_sum grads
grad_norm = sqrt grad_sum
has_weight = gt weight_norm 0
has_grad = gt grad_norm 0
has_both = mul has_weight has_grad
adapts = mul has_both adapt
norm_decay = mul wd weight_norm
norms = add grad_norm norm_decay
bottom = add norms eps
top = mul eta weight_norm
quotient = div top bottom
trust = select adapts quotient 1
rate = mul learning_rate trust
growth = div learning_rate rate_before
corrects = mul momentum_correction rate_before
factor = select corrects growth 1
kept_part = mul momentum factor
scaled = mul sum rescale_grad
low = min clip_gradient scaled
g = max minus low
decay = mul value wd
total = add g decay
step = mul total rate
kept = mul mom kept_part
m = sub kept step
w = add value m
rate_before <- learning_rate
mom <- m
value <- w
)";

// MXNet's LBSGD with one update per batch: a trust ratio as in LARS, between 0.01 and 100.
constexpr std::string_view kLbSgd = R"(program lbsgd
param learning_rate 0.01
param wd 0
param rescale_grad 1
param clip_gradient inf
param momentum 0
state mom
minus = neg clip_gradient
weights = mul value value
weight_sum = reduce_sum weights
grads = mul sum sum
grad_sum = reduce_sum grads
norm_decay = mul wd weight_sum
norms = add grad_sum norm_decay
bottom = add norms 1e-18
quotient = div weight_sum bottom
root = sqrt quotient
trust_low = max 0.01 root
trust = min 100 trust_low
rate = mul learning_rate trust
scaled = mul sum rescale_grad
low = min clip_gradient scaled
g = max minus low
decay = mul value wd
total = add g decay
step = mul total rate
kept = mul mom momentum
m = sub kept step
w = add value m
mom <- m
value <- w
)";

constexpr std::string_view kSgld = R"(program sgld
param learning_rate 0.01
param wd 0
param rescale_grad 1
param clip_gradient inf
param seed 0
minus = neg clip_gradient
half = div learning_rate 2
deviation = sqrt learning_rate
scaled = mul sum rescale_grad
low = min clip_gradient scaled
g = max minus low
decay = mul value wd
total = add g decay
step = mul total half
moved = sub value step
drawn = normal seed t
noise = mul drawn deviation
w = add moved noise
value <- w
)";

// `previous` is undefined before the first update; `begun` tells that case.
constexpr std::string_view kDcAsgd = R"(program dcasgd
param learning_rate 0.01
param wd 0
param rescale_grad 1
param clip_gradient inf
param momentum 0
param lamda 0.04
state mom
state previous
scalar begun 0
minus = neg clip_gradient
after = add 0 1
scaled = mul sum rescale_grad
low = min clip_gradient scaled
g = max minus low
before = select begun previous value
moved = sub value before
square = mul g g
factor = mul square lamda
delay = mul factor moved
decay = mul value wd
decayed = add g decay
total = add decayed delay
step = mul total learning_rate
kept = mul mom momentum
m = sub kept step
w = add value m
begun <- after
mom <- m
previous <- value
value <- w
)";

struct Builtin {
  std::string_view text;
  kernels::Fused fused = kernels::Fused::kNone;
  std::vector<std::string_view> scalars = {};
};

const std::vector<Builtin>& Builtins() {
  using kernels::Fused;
  static const auto* const builtins = new std::vector<Builtin>{
      {kSgd, Fused::kSgd, {"rescale_grad", "clip_gradient", "wd", "learning_rate"}},
      {kMomentum,
       Fused::kMomentum,
       {"rescale_grad", "clip_gradient", "wd", "learning_rate", "momentum"}},
      {kAdam,
       Fused::kAdam,
       {"rescale_grad", "clip_gradient", "wd", "lr_t", "beta1", "rest1", "beta2", "rest2",
        "epsilon"}},
      {kTest},
      {kNag},
      {kSignSgd},
      {kSignum},
      {kRmsProp},
      {kCenteredRmsProp},
      {kAdaGrad,
       Fused::kAdaGrad,
       {"rescale_grad", "clip_gradient", "wd", "learning_rate", "epsilon"}},
      {kAdaDelta},
      {kAdamax},
      {kAdamW,
       Fused::kAdamW,
       {"rescale_grad", "clip_gradient", "keep", "lr_t", "beta1", "rest1", "beta2", "rest2",
        "epsilon", "root2"}},
      {kNadam},
      {kFtrl},
      {kFtml},
      {kLamb},
      {kLars},
      {kLbSgd},
      {kSgld},
      {kDcAsgd},
  };
  return *builtins;
}

// Returns the code on arrays, from the first use of `sum` on.
std::string_view ArrayCodeOf(std::string_view text) {
  return text.substr(text.rfind('\n', text.find(" sum ")) + 1);
}

std::vector<std::string> StatesOf(std::string_view text) {
  constexpr std::string_view kBegin = "\nstate ";
  std::vector<std::string> states;
  for (size_t at = text.find(kBegin); at != std::string_view::npos;
       at = text.find(kBegin, at + 1)) {
    const size_t begin = at + kBegin.size();
    states.emplace_back(text.substr(begin, text.find('\n', begin) - begin));
  }
  return states;
}

// Returns all built-in programs by name, parsed once.
const std::map<std::string, Program, std::less<>>& Programs() {
  static const auto* const programs = [] {
    auto* made = new std::map<std::string, Program, std::less<>>;
    for (const Builtin& builtin : Builtins()) {
      const Program program = Program::Parse(builtin.text);
      made->emplace(program.name(), program);
    }
    return made;
  }();
  return *programs;
}

}  // namespace

std::vector<std::string> BuiltinOptimizers() {
  std::vector<std::string> names;
  for (const auto& [name, program] : Programs()) names.push_back(name);
  return names;
}

Program BuiltinProgram(std::string_view name) {
  const auto& programs = Programs();
  const auto found = programs.find(name);
  if (found != programs.end()) return found->second;
  throw Fail(Code::kNotFound, "optimizer '{}': no such built-in; there are {}", name,
             Join(BuiltinOptimizers(), ", "));
}

FusedKernel FusedFor(std::string_view text, const std::vector<std::string>& states) {
  for (const Builtin& builtin : Builtins()) {
    if (builtin.fused == kernels::Fused::kNone) continue;
    const std::string code = Format("\n{}", ArrayCodeOf(builtin.text));
    // The kernels negate the bound themselves.
    const bool is_same = text.ends_with(code) && StatesOf(builtin.text) == states &&
                         text.find("\nminus = neg clip_gradient\n") != std::string_view::npos;
    if (is_same) {
      return {builtin.fused, builtin.scalars};
    }
  }
  return {};
}

}  // namespace tkv
