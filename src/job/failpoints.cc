#include "job/failpoints.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstring>
#include <deque>
#include <map>
#include <string_view>
#include <utility>

#include "base/format.h"

namespace tkv {
namespace {

using Action = Failpoint::Action;

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Failpoint Read(const std::vector<std::string_view>& parts, std::string_view text) {
  const auto wrong = [text](const char* what) {
    return Fail(Code::kInvalidArgument,
                "failpoint '{}': {}; it is WHO:sent|received:TYPE:COUNT:kill|stop|cut", text, what);
  };
  if (parts.size() != 5) throw wrong("not five parts");
  Failpoint failpoint;
  if (parts[1] != "sent" && parts[1] != "received")
    throw wrong("the second part is neither sent nor received");
  failpoint.at_sent = parts[1] == "sent";
  int type = 1;
  while (type < 256 && Name(static_cast<Type>(type)) != parts[2]) ++type;
  if (type == 256) throw wrong("the third part is no type of a message");
  failpoint.type = static_cast<Type>(type);
  const std::string count(parts[3]);
  const auto read = std::from_chars(count.c_str(), count.c_str() + count.size(), failpoint.count);
  const bool is_number = read.ec == std::errc() && *read.ptr == '\0';
  if (!is_number || failpoint.count < 1) throw wrong("the fourth part is no count from 1 on");
  constexpr std::array<std::string_view, 3> kActions = {"kill", "stop", "cut"};
  const auto* const action = std::find(kActions.begin(), kActions.end(), parts[4]);
  if (action == kActions.end()) throw wrong("the last part is none of kill, stop and cut");
  failpoint.action = static_cast<Action>(action - kActions.begin());
  return failpoint;
}

class Faulty final : public Endpoint, LinkHandler {
 public:
  Faulty(std::unique_ptr<Endpoint> endpoint, std::vector<Failpoint> failpoints)
      : endpoint_(std::move(endpoint)), failpoints_(std::move(failpoints)) {}

  // ---- calls of the user

  const std::string& address() const override { return endpoint_->address(); }
  void Dial(uint64_t link, const std::string& address) override { endpoint_->Dial(link, address); }
  void Send(uint64_t link, Frame frame) override {
    const std::vector<Type> types = TypesOf(std::as_bytes(std::span(frame.head)));
    endpoint_->Send(link, std::move(frame));
    Passed(link, types, true);
  }
  void Close(uint64_t link) override { endpoint_->Close(link); }
  void ReleaseSource(const void* data, size_t bytes) override {
    endpoint_->ReleaseSource(data, bytes);
  }
  void ReleaseTarget(const void* data, size_t bytes) override {
    endpoint_->ReleaseTarget(data, bytes);
  }
  size_t Poll(LinkHandler* handler, size_t events_max) override {
    user_ = handler;
    size_t count = endpoint_->Poll(this, events_max);
    count += cut_.size();
    while (!cut_.empty()) {
      const uint64_t link = cut_.front();
      cut_.pop_front();
      endpoint_->Close(link);
      user_->Closed(link, Error(Code::kUnavailable, "cut by a failpoint"));
    }
    return count;
  }
  bool Wait(int64_t nanoseconds) override { return !cut_.empty() || endpoint_->Wait(nanoseconds); }
  void Wake() override { endpoint_->Wake(); }
  TrafficStats Traffic(uint64_t link) const override { return endpoint_->Traffic(link); }

 private:
  // ---- events of the endpoint behind it

  uint64_t Accepted() override { return user_->Accepted(); }
  void Opened(uint64_t link) override { user_->Opened(link); }
  bool IsWelcome(uint64_t link) override { return user_->IsWelcome(link); }
  bool MayGoOn() override { return user_->MayGoOn(); }
  void Closed(uint64_t link, const Error& reason) override {
    std::erase(cut_, link);
    landing_.erase(link);
    user_->Closed(link, reason);
  }
  std::vector<Block> Land(uint64_t link, std::span<const std::byte> head,
                          const std::byte* lent) override {
    landing_[link] = TypesOf(head);
    return user_->Land(link, head, lent);
  }
  void Received(uint64_t link) override {
    const std::vector<Type> types = std::exchange(landing_[link], {});
    user_->Received(link);
    Passed(link, types, false);
  }

  static std::vector<Type> TypesOf(std::span<const std::byte> head) {
    std::vector<Type> types;
    FrameHeader header;
    std::memcpy(&header, head.data(), std::min(sizeof(header), head.size()));
    for (uint32_t i = 0; i < header.entry_count; ++i) {
      const size_t at = sizeof(header) + i * sizeof(FrameEntry) + offsetof(FrameEntry, type);
      if (at >= head.size()) break;
      types.push_back(static_cast<Type>(head[at]));
    }
    return types;
  }

  void Passed(uint64_t link, const std::vector<Type>& types, bool are_sent) {
    for (Failpoint& failpoint : failpoints_) {
      if (failpoint.at_sent != are_sent || failpoint.count == 0) continue;
      const auto met = std::count(types.begin(), types.end(), failpoint.type);
      failpoint.count -= static_cast<int>(std::min<ptrdiff_t>(met, failpoint.count));
      if (met == 0 || failpoint.count > 0) continue;
      if (failpoint.action == Action::kCut) {
        cut_.push_back(link);
      } else {
        kill(getpid(), failpoint.action == Action::kKill ? SIGKILL : SIGSTOP);
      }
    }
  }

  const std::unique_ptr<Endpoint> endpoint_;
  std::vector<Failpoint> failpoints_;
  LinkHandler* user_ = nullptr;
  std::map<uint64_t, std::vector<Type>> landing_;  // by link
  std::deque<uint64_t> cut_;                       // links that are to be closed at the next poll
};

}  // namespace

std::vector<Failpoint> FailpointsOf(const std::string& who, const std::string& text) {
  std::vector<Failpoint> failpoints;
  if (text.empty()) return failpoints;
  for (const std::string_view one : Split(text, ',')) {
    const std::vector<std::string_view> parts = Split(one, ':');
    const Failpoint failpoint = Read(parts, one);
    if (parts[0] == who) failpoints.push_back(failpoint);
  }
  return failpoints;
}

std::unique_ptr<Endpoint> WithFailpoints(std::unique_ptr<Endpoint> endpoint,
                                         std::vector<Failpoint> failpoints) {
  if (failpoints.empty()) return endpoint;
  return std::make_unique<Faulty>(std::move(endpoint), std::move(failpoints));
}

}  // namespace tkv
