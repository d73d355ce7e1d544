// Compiles programs for a dtype, and binds the scalars of one update.

#include "update/binding.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/format.h"

namespace tkv {

// Only scalars that meet an array are rounded: lr = 0.1 may scale another scalar of an integer
// program.
std::vector<std::byte> RoundFor(const TileCode& code, std::span<const double> values) {
  std::vector<double> needed(values.size(), 0.0);
  for (const TileCode::Step& step : code.steps) {
    for (const TileCode::Location& location : step.operands) {
      if (location.kind == TileCode::Location::Kind::kScalar)
        needed[location.index] = values[location.index];
    }
  }
  return RoundScalars(needed, code.compute);
}

namespace {

// Calls `bind`.  If it throws, the error names the program and the dtype, and suggests a remedy.
template <typename Bind>
auto SayingWhy(const Program& program, DType dtype, Bind bind) {
  try {
    return bind();
  } catch (const Error& error) {
    throw Fail(error.code(),
               "program {} does not update {} keys ({}); optimizers update floating-point keys: "
               "leave this key out, or give it a store without an optimizer",
               program.name(), Name(dtype), error.what());
  }
}

}  // namespace

void TakeScalars(const CompiledUpdate& update, std::span<const double> values,
                 UpdateScalars* scalars) {
  const ProgramBody& body = update.program.body();
  for (size_t i = 0; i < scalars->states.size(); ++i) {
    const uint16_t stored = body.scalar_stores[i];
    if (stored != kNoScalar) scalars->states[i] = values[stored];
  }
  if (update.fused != kernels::Fused::kNone) {
    scalars->fused_count = 0;
    for (uint16_t index : body.fused_scalars)
      scalars->fused[scalars->fused_count++] = values[index];
    return;
  }
  const TileCode* const shorter = update.shorter->For(values);
  scalars->code = shorter != nullptr ? shorter : &update.code;
  scalars->rounded = SayingWhy(update.program, scalars->code->compute,
                               [&] { return RoundFor(*scalars->code, values); });
}

ShorterCode::ShorterCode(const Program& program, DType dtype)
    : program_(program),
      dtype_(dtype),
      identities_(IsFloat(dtype) ? FindIdentities(program.body()) : std::vector<Identity>()) {}

const TileCode* ShorterCode::For(std::span<const double> scalars) {
  uint64_t left_out = 0;
  const size_t count = std::min<size_t>(identities_.size(), 64);
  for (size_t i = 0; i < count; ++i) {
    const bool is_identity = scalars[identities_[i].scalar] == identities_[i].value;
    left_out |= static_cast<uint64_t>(is_identity) << i;
  }
  if (left_out == 0) return nullptr;
  std::lock_guard lock(mutex_);
  const auto found = codes_.find(left_out);
  if (found != codes_.end()) return &found->second;
  if (codes_.size() == kKeptMax) return nullptr;
  return &codes_.emplace(left_out, Compile(Without(program_.body(), identities_, left_out), dtype_))
              .first->second;
}

CompiledUpdate CompileUpdate(const Program& program, DType dtype) {
  const ProgramBody& body = program.body();
  // Compiled even if a fused kernel runs: this checks that the dtype has every operation.
  CompiledUpdate update{program,
                        SayingWhy(program, dtype, [&] { return Compile(body, dtype); }),
                        {},
                        body.fused,
                        std::make_shared<ShorterCode>(program, dtype)};
  update.passes = CompilePasses(body, dtype);
  if (!IsFloat(dtype)) update.fused = kernels::Fused::kNone;
  return update;
}

UpdateScalars BindScalars(const CompiledUpdate& update, std::span<const double> params,
                          std::span<void* const> states, double t, double n) {
  const ProgramBody& body = update.program.body();
  const size_t arrays = body.states.size();
  const size_t kept = body.scalar_states.size();
  std::array<double, kScalarsMax> values;
  std::array<double, Program::kStatesMax> before;
  TKV_CHECK(body.scalars.size() <= kScalarsMax && params.size() == body.params.size());
  TKV_CHECK(states.empty() || states.size() == arrays + kept);
  for (size_t i = 0; i < kept && !states.empty(); ++i) {
    std::memcpy(&before[i], states[arrays + i], sizeof(double));
  }
  EvaluateScalars(body, params.data(), states.empty() ? nullptr : before.data(), t, n,
                  values.data());
  UpdateScalars scalars;
  for (size_t i = 0; i < kept; ++i) {
    scalars.states.push_back(states.empty() ? body.scalar_states[i].initial : before[i]);
  }
  const std::span<const double> known(values.data(), body.scalars.size());
  if (!body.reductions.empty() || body.draw_count > 0)
    scalars.values.assign(known.begin(), known.end());
  TakeScalars(update, known, &scalars);
  return scalars;
}

void KeepScalars(const UpdateScalars& scalars, std::span<void* const> states) {
  const size_t arrays = states.size() - scalars.states.size();
  for (size_t i = 0; i < scalars.states.size(); ++i) {
    std::memcpy(states[arrays + i], &scalars.states[i], sizeof(double));
  }
}

}  // namespace tkv
