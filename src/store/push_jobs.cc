#include "store/push_jobs.h"

#include <cstdint>
#include <utility>

#include "base/memory_error.h"
#include "store/checks.h"
#include "store/home.h"
#include "update/parallel.h"
#include "update/program_body.h"

namespace tkv {

PushJobs::PushJobs(PushInput* input)
    : input_(*input), jobs_(input->count), gpus_(input->claim.verb) {
  Updater* const updater = input_.claim.updater.get();
  if (updater->optimizer != nullptr) updates_.emplace(input_.claim.verb, updater, input_.count);
}

// -------------------------------------------------------------------------------------------------
// prepare

// Describes the sum of the values of a key.  Inline, because a call may have thousands of keys.
inline TileJob& PushJobs::BeginJob(size_t group, const Entry& entry) {
  TileJob& job = jobs_[group];
  job.dtype = entry.value.dtype();
  job.count = static_cast<size_t>(entry.value.size());
  input_.sources.GiveTo(group, &job);
  job.value = entry.value.data();
  if (input_.outputs != nullptr) job.outputs = input_.outputs->of(group);
  CheckSum(input_.claim.verb, entry, updates_ ? SIZE_MAX : job.sources.size());
  return job;
}

void PushJobs::Prepare() {
  const Claim& claim = input_.claim;
  if (claim.has_rows || !input_.rows.empty()) BeginRows();
  for (size_t g = 0; g < input_.count; ++g) {
    const Entry& entry = *claim.entries[g];
    if (entry.by_rows()) {
      PrepareRows(g);
      continue;  // the job of this key stays empty
    }
    TileJob& job = BeginJob(g, entry);
    const bool is_on_gpu = claim.has_gpus && IsOnGpu(entry);
    if (!updates_) {
      if (is_on_gpu) GiveToGpu(entry, {entry.states, entry.master, 0}, {}, &job);
      continue;
    }
    const KeyUpdates::KeyState state = updates_->Bind(g, entry, &job);
    if (is_on_gpu) GiveToGpu(entry, state, updates_->params(), &job);
    if (rows_ && input_.rows[g]) PrepareRowJobs(g);
  }
  if (claim.has_gpus) PrepareGpus();
  if (rows_ && !rows_->jobs.empty()) {
    rows_->jobs.insert(rows_->jobs.end(), jobs_.begin(), jobs_.end());
  }
}

// Sums the arrays that are pushed to keys kept by rows.
void PushJobs::BeginRows() {
  rows_.emplace();
  rows_->pushes.resize(input_.count);
  input_.rows.resize(input_.count);
  for (size_t g = 0; g < input_.count; ++g) {
    const Entry& entry = *input_.claim.entries[g];
    if (input_.rows[g] || !entry.by_rows()) continue;
    const auto arrays = input_.sources.of(g);
    CheckSum(input_.claim.verb, entry, arrays.size());
    input_.rows[g] = SumArrays(entry, arrays);
  }
}

void PushJobs::PrepareRows(size_t group) {
  Entry* const entry = input_.claim.entries[group];
  NamingKey(input_.claim.verb, entry->key.view(), [&] {
    Updater* const updater = entry->rows->own ? entry->rows->own.get() : input_.claim.updater.get();
    rows_->pushes[group] = std::make_unique<RowsPush>(entry, *std::move(input_.rows[group]),
                                                      updater->optimizer, updater);
  });
}

// Replaces the job of a key by jobs for the pushed rows.
void PushJobs::PrepareRowJobs(size_t group) {
  TileJob& job = jobs_[group];
  AddRowJobs(job, *input_.claim.entries[group], *input_.rows[group], &rows_->states, &rows_->jobs);
  job.count = 0;
}

// Moves the job of a key to the launch on the GPU that has its value.  The job that is left for the
// host is empty.
void PushJobs::GiveToGpu(const Entry& entry, const KeyUpdates::KeyState& state,
                         std::span<const double> params, TileJob* job) {
  GpuBatch& batch = gpus_.Of(entry.value);
  batch.Names(entry.key.view());
  batch.Add(*job, params, state.round);
  batch.Writes(entry.value);
  const size_t arrays = job->update == nullptr ? 0 : job->update->program.body().states.size();
  for (size_t i = 0; i < arrays; ++i) batch.Writes(state.arrays[i]);
  if (job->master != nullptr) batch.Writes(state.master);
  const auto kept = job->states;
  *job = TileJob();
  job->states = kept;
}

void PushJobs::PrepareGpus() {
  const auto& entries = input_.claim.entries;
  for (const Lent& one : input_.sources.lent) {
    gpus_.Of(entries[one.of]->value).Reads(one.storage);
  }
  if (input_.outputs != nullptr) {
    for (const Lent& one : input_.outputs->lent) {
      gpus_.Of(entries[one.of]->value).Writes(one.storage);
    }
  }
  gpus_.Prepare();
}

// -------------------------------------------------------------------------------------------------
// enter, run, commit

void PushJobs::Enter() {
  if (input_.claim.has_gpus) gpus_.Enter(input_.claim.options.patience);
}

void PushJobs::Run() {
  // The GPUs are first: if only they fail, nothing has changed.
  if (input_.claim.has_gpus) partial_error_ = gpus_.Update();
  try {
    RunOnHost();
  } catch (const Error& error) {
    if (!gpus_.has_begun()) throw;
    updated_ = Updated::kOnGpus;
    if (!partial_error_) partial_error_ = error;
  }
}

void PushJobs::RunOnHost() {
  NamedWhereMemoryEnds(input_.claim.verb, [&] {
    const bool has_row_jobs = rows_ && !rows_->jobs.empty();
    RunJobs(has_row_jobs ? std::span<const TileJob>(rows_->jobs) : jobs(),
            ThreadsFor(input_.claim.options.threads));
  });
  if (!rows_) return;
  for (const auto& push : rows_->pushes) {
    if (push) push->Run();
  }
}

void PushJobs::Commit() {
  if (updates_) updates_->Keep(input_.entries(), jobs(), updated_);
}

}  // namespace tkv
