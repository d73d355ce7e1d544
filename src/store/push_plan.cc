#include "store/push_plan.h"

#include <algorithm>
#include <utility>

#include "store/checks.h"
#include "update/gpu_jobs.h"
#include "update/parallel.h"
#include "update/program_body.h"

namespace tkv {
namespace {

// Returns the number of keys that a call pushes.  Keys that only have outputs follow them.
size_t PushedKeys(const Claim& claim) {
  const auto& groups = claim.push_groups;
  return groups.empty() ? 0 : *std::max_element(groups.begin(), groups.end()) + 1;
}

}  // namespace

PushPlan::PushPlan(Claim* claim, LocalCompression* compression)
    : claim_(*claim),
      compression_(*compression),
      updates_(UpdatesOf(*claim)),
      input_{*claim, PushedKeys(*claim)},
      compressors_(compression->PlanOf(input_.entries())) {}

// A key kept by rows may be too large for an array, so no function updates it.
PushPlan::Updates PushPlan::UpdatesOf(const Claim& claim) {
  if (!claim.updater->function) return Updates::kByJobs;
  if (!claim.has_rows) return Updates::kByFunction;
  size_t own = 0;
  for (const size_t group : claim.push_groups) {
    const Entry& entry = *claim.entries[group];
    if (!entry.by_rows()) continue;
    if (!entry.rows->own) {
      throw Fail(Code::kUnimplemented,
                 "{} {}: the updater is a function, and the key is kept by rows, which only an "
                 "optimizer updates; set_optimizer sets one, and init_table(optimizer=)",
                 claim.verb, entry.key.view().ToString());
    }
    ++own;
  }
  if (own == 0) return Updates::kByFunction;
  if (own == claim.push_groups.size()) return Updates::kByJobs;
  throw Fail(Code::kUnimplemented,
             "{}: tables with optimizers of their own and keys whose updater is a function; push "
             "them by calls of their own",
             claim.verb);
}

std::function<bool(size_t group)> PushPlan::NeedsHost() const {
  const Updater& updater = *claim_.updater;
  const bool has_kernel = updater.optimizer == nullptr || HasKernel(updater.optimizer->program());
  return [this, has_kernel](size_t group) {
    return !has_kernel || (!compressors_.empty() && compressors_[group]);
  };
}

// -------------------------------------------------------------------------------------------------
// input

void PushPlan::SumRows(std::span<const RowsPushItem> items, std::vector<NDArray>* kept) {
  input_.rows = tkv::SumRows(items, claim_, kept);
}

void PushPlan::Gather(std::span<const PushItem> items, size_t before) {
  input_.sources.Take(items, claim_, before);
}

// Makes arrays of the rows that are pushed to keys with a value, unless a lazy optimizer updates
// only these rows.
void PushPlan::SpreadRows() {
  const Optimizer* const optimizer = claim_.updater->optimizer.get();
  const bool is_lazy =
      optimizer != nullptr && optimizer->lazy() && !NeedsWholeValue(optimizer->program());
  input_.sources.bases.resize(input_.count);
  for (size_t g = 0; g < input_.count; ++g) {
    const Entry& entry = *claim_.entries[g];
    auto& rows = input_.rows[g];
    if (!rows || entry.by_rows() || (is_lazy && IsArithmetic(entry.dtype()))) continue;
    input_.sources.bases[g] =
        NamingKey(claim_.verb, entry.key.view(), [&] { return SpreadOut(entry, *rows); });
    rows.reset();
  }
}

// -------------------------------------------------------------------------------------------------
// phases

void PushPlan::Prepare() {
  if (!input_.rows.empty()) SpreadRows();
  if (!compressors_.empty()) {
    owed_ = LocalCompression::Apply(claim_.verb, input_.entries(), compressors_, &input_.sources,
                                    ThreadsFor(claim_.options.threads));
  }
  if (updates_ == Updates::kByFunction) {
    work_.emplace(std::in_place_type<FunctionPush>, input_);
  } else if (SmallAssigns::Suit(input_)) {
    work_.emplace(std::in_place_type<SmallAssigns>, input_);
  } else {
    work_.emplace(std::in_place_type<PushJobs>, &input_);
  }
  std::visit([](auto& work) { work.Prepare(); }, *work_);
}

void PushPlan::Enter() {
  std::visit([](auto& work) { work.Enter(); }, *work_);
}

void PushPlan::Run() {
  std::visit([](auto& work) { work.Run(); }, *work_);
}

void PushPlan::Commit() {
  std::visit([](auto& work) { work.Commit(); }, *work_);
  if (auto* const jobs = std::get_if<PushJobs>(&*work_)) {
    partial_error_ = std::move(jobs->partial_error());
  }
  work_.reset();  // a function learns now that the push has ended, before outputs are written
  if (owed_.lost > 0) compression_.WarnOfLost(claim_.verb, owed_.lost, claim_.options);
  std::move(owed_).Keep();
  claim_.pushed_keys = input_.count;
}

void PushPlan::CheckComplete() const {
  if (!partial_error_) return;
  throw Fail(partial_error_->code(), "{}; what the call has pushed to other keys counts",
             partial_error_->what());
}

}  // namespace tkv
