#include "dist/server_updater.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "store/checks.h"

namespace tkv {

// Sets the updater on the servers; returns false if that is left to another worker.
bool ServerUpdater::Control(const std::string& verb, UpdateSpec spec) {
  // The lowest rank defines the updater for all.
  if (!core_.worker->Ask(&Client::IsSender)) return false;
  const Operation::Control control{std::move(spec)};
  core_.calls.Await(core_.calls.Start(verb, core_.calls.Make(control, verb, nullptr)));
  return true;
}

void ServerUpdater::Clear(const std::string& verb) {
  Control(verb, {});
  const auto lock = core_.Lock(verb);
  optimizer_ = nullptr;
}

// Returns false for the program of a function or of a user, which workers may have under one name in
// different texts: that of the worker which sets it for all counts.
static bool IsBuiltin(const Optimizer& optimizer) {
  const std::vector<std::string> names = BuiltinOptimizers();
  return std::ranges::find(names, optimizer.program().name()) != names.end();
}

void ServerUpdater::Set(const std::string& verb, std::shared_ptr<const Optimizer> optimizer) {
  UpdateSpec spec;
  {
    const auto lock = core_.Lock(verb);
    spec = SpecOf(*optimizer);
    spec.fresh = optimizer_ != nullptr && optimizer_ != optimizer &&
                 !DoSame(*optimizer_, *optimizer, core_.keys.order());
  }
  std::vector<double> params = spec.params;
  const uint64_t digest = IsBuiltin(*optimizer) ? spec.Digest() : 0;
  const bool is_mine = Control(verb, std::move(spec));
  const auto lock = core_.Lock(verb);
  is_optimizer_of_other_ = !is_mine;
  ++optimizer_number_;
  optimizer_ = std::move(optimizer);
  committed_params_ = std::move(params);
  digest_ = digest;
  compiled_ = {};
}

void ServerUpdater::Check(std::string_view verb, const KeyRecord& record) {
  const DType dtype = record.info.dtype;
  const Optimizer* const optimizer = record.own ? record.own.get() : optimizer_.get();
  const int workers = core_.worker->workers();
  if (!IsArithmetic(dtype) && (workers > 1 || optimizer != nullptr)) {
    throw Fail(Code::kInvalidArgument, "{} {}: {} values cannot be summed or updated", verb,
               record.key.view().ToString(), Name(dtype));
  }
  if (optimizer == nullptr) return;
  NamingKey(verb, record.key.view(), [&] {
    CompiledUpdates& code = record.own ? record.own_code : compiled_;
    BindScalars(code.For(optimizer->program(), dtype), optimizer->ParamsFor(record.key.view()), {},
                1, workers);
  });
}

void ServerUpdater::AddParams(const KeyView& key, PushSource* source) const {
  const KeyRecord& record = *source->record;
  if (record.own) {
    std::vector<double> params = record.own->ParamsFor(key);
    if (params != record.meta->own->params) source->scalars = std::move(params);
    return;
  }
  if (optimizer_ == nullptr) return;
  std::vector<double> params = optimizer_->ParamsFor(key);
  const bool is_first =
      is_optimizer_of_other_ && std::atomic_ref(record.params_sent_for).load() != optimizer_number_;
  if (is_first) {
    source->params_sent_for = optimizer_number_;
    source->rule = digest_;
  }
  if (params != committed_params_ || is_first) source->scalars = std::move(params);
}

}  // namespace tkv
