#include "client/op_table.h"

#include <functional>

#include "base/format.h"

namespace tkv {
namespace {

constexpr size_t kEndedTimers = 64;  // entries of ended operations beyond the allowed share

}  // namespace

std::string Op::Prefix() const {
  if (operation.key.empty() || operation.Is<Operation::Barrier>()) return operation.verb;
  return Format("{} {}", operation.verb, ShownKey(operation.key));
}

Error Op::Prefixed(const Error& error) const {
  return {error.code(), Format("{}: {}", Prefix(), error.what())};
}

Op& OpTable::Add(Operation operation, Time now) {
  const OpId id = ++last_;
  Op& op = ops_.Add(id);
  op.id = id;
  op.operation = std::move(operation);
  op.key = IdOf(op.operation.key);
  op.begin = now;
  op.deadline = now + (op.operation.patience > 0 ? op.operation.patience : times_.patience);
  op.notice_step = times_.first_notice;
  op.next_notice = now + times_.first_notice;
  JoinVerb(&op);
  SetTimer(op);
  return op;
}

void OpTable::Erase(Op* op) {
  if (!op->expired) LeaveVerb(op);
  ops_.Erase(op->id);
}

// Entries of ended operations stay in the heap until they are due or outnumber the others.
void OpTable::SetTimer(const Op& op) {
  if (timers_.size() > 2 * ops_.size() + kEndedTimers) {
    std::erase_if(timers_, [&](const auto& timer) { return Find(timer.second) == nullptr; });
    std::ranges::make_heap(timers_, std::greater<>());
  }
  timers_.emplace_back(op.NextTime(), op.id);
  std::ranges::push_heap(timers_, std::greater<>());
}

OpId OpTable::PopTimer() {
  std::ranges::pop_heap(timers_, std::greater<>());
  const OpId id = timers_.back().second;
  timers_.pop_back();
  return id;
}

std::vector<OpId> OpTable::TakeDue(Time now) {
  std::vector<OpId> due;
  while (!timers_.empty() && timers_.front().first <= now) {
    const OpId id = PopTimer();
    if (Find(id) != nullptr) due.push_back(id);
  }
  std::ranges::sort(due);
  return due;
}

Time OpTable::NextTimer() {
  while (!timers_.empty() && Find(timers_.front().second) == nullptr) PopTimer();
  return timers_.empty() ? kNever : timers_.front().first;
}

// Appends the newest operation to the list of its verb.
void OpTable::JoinVerb(Op* op) {
  auto list = std::ranges::find(verbs_, op->operation.verb, &VerbList::verb);
  if (list == verbs_.end()) list = std::ranges::find(verbs_, 0U, &VerbList::count);
  if (list == verbs_.end()) list = verbs_.emplace(list);
  if (list->count == 0) list->verb = op->operation.verb;
  op->entry = {static_cast<size_t>(list - verbs_.begin()), list->newest, kNoOp};
  (list->count == 0 ? list->oldest : Find(list->newest)->entry.newer) = op->id;
  list->newest = op->id;
  ++list->count;
}

void OpTable::LeaveVerb(Op* op) {
  const Op::ListEntry& entry = op->entry;
  VerbList& list = verbs_[entry.verb];
  (entry.older == kNoOp ? list.oldest : Find(entry.older)->entry.newer) = entry.newer;
  (entry.newer == kNoOp ? list.newest : Find(entry.newer)->entry.older) = entry.older;
  --list.count;
}

}  // namespace tkv
