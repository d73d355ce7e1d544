#include "runtime/node_thread.h"

#include <algorithm>
#include <chrono>

namespace tkv {
namespace {

constexpr size_t kEventsPerTurn = 32;
constexpr Time kLongestSleep = 100 * kMillisecond;

}  // namespace

NodeThread::NodeThread(std::unique_ptr<Node> node, std::unique_ptr<Endpoint> endpoint,
                       NodeThreadOptions options)
    : node_(std::move(node)), endpoint_(std::move(endpoint)), options_(std::move(options)) {}

NodeThread::~NodeThread() { Stop(); }

Time NodeThread::Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void NodeThread::Start() {
  Run([](Node& node, Time now) { node.Start(now); });
  thread_ = std::thread([this] { Loop(); });
}

void NodeThread::Stop() {
  stopping_ = true;
  if (endpoint_ != nullptr) endpoint_->Wake();
  if (thread_.joinable()) thread_.join();
  std::lock_guard lock(mutex_);
  endpoint_.reset();  // its peers see the links close
}

void NodeThread::Closed(uint64_t link, const Error& reason) {
  if (const Peer* const dialed = node_->DialedPeer(link); dialed != nullptr && options_.failed) {
    options_.failed(*dialed, reason);
  }
  const bool is_final =
      reason.code() == Code::kUnauthenticated || reason.code() == Code::kFailedPrecondition;
  if (is_final) {
    node_->Refused(link, reason, Now());
  } else if (reason.code() == Code::kAborted) {
    node_->PeerEnded(link, Now());
  } else {
    node_->Closed(link, Now());
  }
}

void NodeThread::Dispatch() {
  NodeOutput output = node_->TakeOutput();
  if (endpoint_ != nullptr) {
    for (const NodeOutput::Dial& dial : output.dials) {
      endpoint_->Dial(dial.link,
                      dial.address.empty() ? options_.address_of(dial.peer) : dial.address);
    }
    for (NodeOutput::Send& send : output.sends) endpoint_->Send(send.link, std::move(send.frame));
    for (const LinkId link : output.closes) endpoint_->Close(link);
  }
  if (options_.log) {
    for (const Effects::Notice& notice : output.notices) {
      options_.log(static_cast<int>(notice.level), notice.text);
    }
  }
  if (on_change_) on_change_(*node_);
}

void NodeThread::Loop() {
  while (!stopping_) {
    size_t count = 0;
    Time sleep = 0;
    {
      std::lock_guard lock(mutex_);
      count = endpoint_->Poll(this, kEventsPerTurn);
      const Time now = Now();
      if (node_->deadline() <= now) node_->Tick(now);
      Dispatch();
      sleep = std::min(node_->deadline() - now, kLongestSleep);
    }
    if (count == 0 && !stopping_) endpoint_->Wait(std::max<Time>(sleep, 0));
  }
}

}  // namespace tkv
