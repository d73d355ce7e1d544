#include "store/local_trace.h"

#include <new>
#include <vector>

#include "base/format.h"

namespace tkv {

void LocalTrace::Start() {
  std::lock_guard lock(mutex_);
  if (!has_begun_) begin_ = recorder_.next();
  has_begun_ = true;
  recorder_.Record(true);
  is_on_ = true;
}

void LocalTrace::Pause() {
  std::lock_guard lock(mutex_);
  recorder_.Record(false);
  is_on_ = false;
}

void LocalTrace::Note(Span::Kind kind, const Claim& claim, const SmallVector<size_t>& groups,
                      int64_t* begin) noexcept {
  const int64_t now = Now();
  Span span;
  span.kind = kind;
  span.begin = *begin;
  span.nanoseconds = now - *begin;
  span.rank = 0;
  *begin = now;
  try {
    Add(claim, groups, span);
  } catch (const std::bad_alloc&) {
    std::lock_guard lock(mutex_);
    if (recorder_.is_on()) ++lost_;
  }
}

void LocalTrace::Add(const Claim& claim, const SmallVector<size_t>& groups, Span span) {
  std::vector<bool> is_known(claim.entries.size());
  size_t keys = 0;
  for (const size_t group : groups) {
    if (is_known[group]) continue;
    is_known[group] = true;
    ++keys;
    span.bytes += claim.entries[group]->bytes;
  }
  std::lock_guard lock(mutex_);
  if (!recorder_.is_on()) return;
  const std::string key =
      keys == 1 ? claim.entries[groups[0]]->key.view().ToString() : Format("of {} keys", keys);
  if (numbers_.size() < Recorder::kSpansMax) {
    span.key_low = numbers_.try_emplace(key, numbers_.size() + 1).first->second;
  }
  recorder_.Add(span);
}

KVStore::TraceInfo LocalTrace::Write(const std::string& file) {
  Pause();
  std::lock_guard lock(mutex_);
  if (!has_begun_) throw Fail(Code::kFailedPrecondition, "no trace has begun");
  std::vector<TracedProcess> processes(1);
  processes[0].name = "store of this process";
  processes[0].spans = recorder_.From(begin_, Recorder::kSpansMax);
  processes[0].lost = recorder_.next() - begin_ - processes[0].spans.size() + lost_;
  std::vector<std::string> names(numbers_.size() + 1);
  for (const auto& [name, number] : numbers_) names[number] = name;
  const KVStore::TraceInfo info =
      WriteTraceFile(file, processes, [&](const Span& span) { return names[span.key_low]; });
  recorder_.Clear();
  numbers_.clear();
  lost_ = 0;
  has_begun_ = false;
  return info;
}

}  // namespace tkv
