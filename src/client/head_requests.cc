#include "client/head_requests.h"

#include <utility>

#include "base/format.h"

namespace tkv {

void HeadRequests::Send(Message request, Effects* effects) {
  const uint64_t op = request.seq;
  const auto [at, is_new] = requests_.insert_or_assign(op, std::move(request));
  effects->to_head.push_back(at->second);
}

void HeadRequests::Opened(Effects* effects) {
  lost_since_ = kNever;
  has_ended_ = false;
  for (const auto& [op, request] : requests_) effects->to_head.push_back(request);
}

void HeadRequests::Closed(Time now) {
  if (lost_since_ == kNever) lost_since_ = now;
}

void HeadRequests::Ended(Time now) {
  has_ended_ = true;
  Closed(now);
}

Time HeadRequests::GivesUpAt() const {
  if (lost_since_ == kNever) return kNever;
  return has_ended_ ? lost_since_ : lost_since_ + patience_;
}

Error HeadRequests::WhyNone(Time now) const {
  if (has_ended_) return {Code::kUnavailable, "the process of the head has ended"};
  return {Code::kUnavailable,
          Format("the head is out of reach for {:.1f} s", Seconds(now - lost_since_))};
}

std::vector<uint64_t> HeadRequests::Operations() const {
  std::vector<uint64_t> operations;
  operations.reserve(requests_.size());
  for (const auto& [op, request] : requests_) operations.push_back(op);
  return operations;
}

}  // namespace tkv
