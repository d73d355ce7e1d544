#include "update/gpu_batch.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/memory_error.h"
#include "update/program_body.h"

namespace tkv {
namespace {

bool IsWanted(const TileJob::Output& output) { return output.data != nullptr; }

// Returns all scalars of the job's program, in f64.  Its scalar states follow the arrays and are in
// host memory.
//   values  room for the scalars
std::span<const double> ScalarsOf(const TileJob& job, std::span<const double> params, double round,
                                  std::span<double, kScalarsMax> values) {
  if (job.update == nullptr) return {};
  const ProgramBody& body = job.update->program.body();
  SmallVector<double, 16> states;
  for (void* const state : job.states.subspan(body.states.size())) {
    states.push_back(*static_cast<const double*>(state));
  }
  EvaluateScalars(body, params.data(), states.data(), round, 1, values.data());
  return values.first(body.scalars.size());
}

}  // namespace

// ------------------------------------------------------------------------------------- one device
size_t GpuBatch::Form::SourcesOf(const TileJob& job) {
  return std::min(job.sources.size(), kernels::Elementwise::kSourcesMax + 1);
}

bool GpuBatch::Form::IsOf(const TileJob& job) const {
  return update == job.update && dtype == job.dtype && sources == SourcesOf(job) &&
         has_master == (job.master != nullptr) && is_wide == job.is_wide &&
         std::ranges::equal(outputs, job.outputs, {}, {}, &TileJob::Output::dtype);
}

GpuBatch::Group& GpuBatch::GroupOf(const TileJob& job) {
  const auto found =
      std::ranges::find_if(groups_, [&](const auto& group) { return group->form.IsOf(job); });
  if (found != groups_.end()) return **found;
  Form form{job.update, job.dtype, Form::SourcesOf(job), job.master != nullptr, job.is_wide, {}};
  for (const TileJob::Output& output : job.outputs) form.outputs.push_back(output.dtype);
  GpuCode code = GpuCodeOf(job);
  kernels::cuda::LaunchTable table(code.elementwise);
  return *groups_.emplace_back(std::make_unique<Group>(
      Group{std::move(form), std::move(code), std::move(table), {}, {}, {}, std::nullopt}));
}

const kernels::cuda::Scalars& GpuBatch::Group::ScalarsOf(const TileJob& job,
                                                         std::span<const double> of_params,
                                                         double of_round) {
  if (round == of_round && AreSameBits(params, of_params)) return scalars;
  std::array<double, kScalarsMax> values;
  scalars = GpuScalarsOf(code, tkv::ScalarsOf(job, of_params, of_round, values));
  params.assign(of_params.begin(), of_params.end());
  round.reset();
  if (job.update == nullptr || job.update->program.body().scalar_states.empty()) round = of_round;
  return scalars;
}

void GpuBatch::Add(const TileJob& job, std::span<const double> params, double round) {
  SmallVector<TileJob::Output, 8> outputs;
  std::ranges::copy_if(job.outputs, std::back_inserter(outputs), IsWanted);
  TileJob wanted = job;
  wanted.outputs = {outputs.data(), outputs.size()};
  if (wanted.count == 0 || (wanted.sources.empty() && outputs.empty())) return;
  Group& group = GroupOf(wanted);
  group.table.Add(GpuEntryOf(wanted, group.ScalarsOf(wanted, params, round)));
}

void GpuBatch::Prepare() {
  if (!groups_.empty()) done_ = std::make_shared<Event>(&device_);
  for (const auto& group : groups_) {
    group->launch.emplace(&device_, group->code.elementwise, group->table);
    if (group->launch->table_memory()) Reads(group->launch->table_memory());
  }
}

void GpuBatch::Run() {
  if (groups_.empty()) return;
  GiveParts(groups_.size(), &*work_, [&](size_t i) {
    groups_[i]->launch->Run();
    has_begun_ = true;
  });
}

void GpuBatch::Names(const KeyView& key) {
  if (key_count_++ == 0) first_key_ = key;
}

std::string GpuBatch::KeysText() const {
  return first_key_.ToString() + (key_count_ > 1 ? Format(" and {} more", key_count_ - 1) : "");
}

// ------------------------------------------------------------------------------------ all devices
GpuBatch& GpuBatches::Of(const NDArray& value) {
  const int32_t index = value.storage()->memory().index;
  const auto found = std::ranges::find_if(
      batches_, [&](const auto& batch) { return batch->device().index() == index; });
  if (found != batches_.end()) return **found;
  return *batches_.emplace_back(std::make_unique<GpuBatch>(&Device::Get(index)));
}

void GpuBatches::Prepare() {
  for (const auto& batch : batches_) {
    batch->Naming(verb_, [&] { batch->Prepare(); });
  }
}

void GpuBatches::Enter(std::chrono::nanoseconds patience) {
  if (batches_.empty()) return;
  std::vector<StreamUse> uses;
  std::vector<GpuBatch*> users;
  for (const auto& batch : batches_) {
    if (batch->empty()) continue;
    uses.push_back(batch->Use(verb_));
    users.push_back(batch.get());
  }
  EnterTogether(uses, patience);
  for (size_t i = 0; i < users.size(); ++i) users[i]->Entered(std::move(uses[i]));
}

void GpuBatches::Run() {
  for (const auto& batch : batches_) {
    batch->Naming(verb_, [&] { batch->Run(); });
  }
}

bool GpuBatches::has_begun() const noexcept {
  return std::ranges::any_of(batches_, [](const auto& batch) { return batch->has_begun(); });
}

std::optional<Error> GpuBatches::Update() {
  std::optional<Error> late;
  for (const auto& batch : batches_) {
    try {
      batch->Naming(verb_, [&] { batch->Run(); });
    } catch (...) {
      if (!has_begun()) throw;
      batch->device().Lose("launch the rest of a call", cuda::Result::kLaunchFailed);
      if (!late) late = ErrorNow(verb_);
    }
  }
  return late;
}

}  // namespace tkv
