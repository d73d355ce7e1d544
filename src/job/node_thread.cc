#include "job/node_thread.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/format.h"
#include "base/process.h"
#include "base/start_thread.h"
#include "metrics/counters.h"

namespace tkv {
namespace {

constexpr size_t kEventsPerTurn = 32;
constexpr Time kLongestTurn = 50 * kMillisecond;
constexpr Time kLongestSleep = kSecond;
constexpr Time kSpin = 50'000;
// A pause in reading counts from this length on.
constexpr Time kAwayLeast = 50 * kMillisecond;
// The pause of a node whose work lacked memory.
constexpr Time kLackRest = 50 * kMillisecond;

}  // namespace

NodeThread::NodeThread(std::unique_ptr<Node> node, std::unique_ptr<Endpoint> endpoint,
                       NodeThreadOptions options)
    : node_(std::move(node)), endpoint_(std::move(endpoint)), options_(std::move(options)) {}

NodeThread::~NodeThread() { Stop(); }

void NodeThread::Start() {
  Run([](Node& node, Time now) { node.Start(now); });
  thread_ = StartThread("talk to the other processes with", [this] { Loop(); });
}

void NodeThread::Stop() {
  turn_.Stop();
  if (endpoint_ != nullptr) endpoint_->Wake();
  if (thread_.joinable()) thread_.join();
  turn_.AwaitCaller();
  std::unique_ptr<DiskReader> reader;
  {
    std::lock_guard lock(mutex_);
    reader = std::move(reader_);
  }
  // The reader may be delivering a result, which takes the lock.
  reader.reset();
  std::lock_guard lock(mutex_);
  // Closes the links, as their peers notice.
  endpoint_.reset();
}

// Adds the traffic of a link that is about to be forgotten.
void NodeThread::CountLink(uint64_t link) {
  for (auto& [peer, dialed] : dialed_) {
    if (dialed.link != link) continue;
    dialed.before += endpoint_->Traffic(link);
    dialed.link = 0;
  }
}

TrafficStats NodeThread::TrafficOf(const Peer& peer) const {
  const auto found = dialed_.find(peer);
  if (found == dialed_.end()) return {};
  TrafficStats traffic = found->second.before;
  if (found->second.link != 0 && endpoint_ != nullptr) {
    traffic += endpoint_->Traffic(found->second.link);
  }
  return traffic;
}

// Returns true if the node goes on without the event for which memory was lacking.
bool NodeThread::ForgetOrBreak(uint64_t link) noexcept {
  if (node_->Forget(link)) return true;
  BreakForLack();
  return false;
}

void NodeThread::Closed(uint64_t link, const Error& reason) {
  if (is_broken_) return;
  try {
    ReportClosed(link, reason);
  } catch (const std::bad_alloc&) {
    ForgetOrBreak(link);
  }
}

void NodeThread::ReportClosed(uint64_t link, const Error& reason) {
  CountLink(link);
  if (const Peer* const dialed = node_->DialedPeer(link); dialed != nullptr && options_.failed) {
    options_.failed(*dialed, reason);
  }
  const bool is_final =
      reason.code() == Code::kUnauthenticated || reason.code() == Code::kFailedPrecondition;
  if (is_final) {
    node_->Refused(link, reason, Now());
  } else if (reason.code() == Code::kAborted) {
    node_->PeerEnded(link, Now());
  } else if (reason.code() == Code::kResourceExhausted) {
    node_->LackedResources(link, reason, Now());
  } else {
    node_->Closed(link, Now());
  }
}

// Stops the node for good while the process lives on.  Waiting callers receive the error after the
// links have closed, so that nothing reads the memory of their pushes any more.
void NodeThread::Break(const Error& error) noexcept {
  turn_.Stop();
  if (std::exchange(is_broken_, true)) return;
  try {
    if (endpoint_ != nullptr) {
      for (const auto& [peer, dialed] : dialed_) {
        if (dialed.link != 0) endpoint_->Close(dialed.link);
      }
    }
    if (options_.broken) options_.broken(error);
  } catch (const std::exception&) {
    // There is not even memory to report it.
    return;
  }
}

void NodeThread::Dispatch() noexcept {
  if (is_broken_) return;
  try {
    // A frame that cannot be sent closes its link, which produces output again.
    if (node_->is_unsound()) return BreakForLack();
    for (NodeOutput output = node_->TakeOutput(); !output.empty(); output = node_->TakeOutput()) {
      Deliver(std::move(output));
      if (is_broken_) return;
    }
    if (on_change_) on_change_(*node_);
  } catch (const Error& error) {
    Break(error);
  } catch (const std::bad_alloc&) {
    ForgetOrBreak(kNoLink);
  } catch (const std::exception& error) {
    static_cast<void>(error);
    BreakForLack();
  }
}

// Runs on the reader's thread.
void NodeThread::ReadEnded(uint64_t ticket) noexcept {
  try {
    Run([ticket](Node& node, Time now) { node.ReadEnded(ticket, now); });
  } catch (const std::exception& error) {
    static_cast<void>(error);
    const std::lock_guard lock(mutex_);
    BreakForLack();
  }
}

void NodeThread::Deliver(NodeOutput output) {
  // Notices come first, because a peer that receives a frame may end this process.
  if (options_.log) {
    for (const Effects::Notice& notice : output.notices) {
      options_.log(static_cast<int>(notice.level), notice.text);
    }
  }
  if (endpoint_ == nullptr) return;
  for (NodeOutput::Reading& reading : output.readings) {
    try {
      if (reader_ == nullptr && !turn_.stopped()) {
        reader_ = std::make_unique<DiskReader>([this](uint64_t ticket) { ReadEnded(ticket); });
      }
      if (reader_ != nullptr) reader_->Read(reading.ticket, std::move(reading.ranges));
    } catch (const std::exception& error) {
      // Without a thread or memory, the node's thread reads.
      static_cast<void>(error);
      node_->ReadEnded(reading.ticket, Now());
    }
  }
  const auto or_close = [this](LinkId link, const auto& act) {
    try {
      return act();
    } catch (const Error& error) {
      endpoint_->Close(link);
      Closed(link, Fail(Code::kUnavailable, "the connection is given up: {}", error.what()));
    } catch (const std::bad_alloc&) {
      endpoint_->Close(link);
      if (!node_->Forget(link)) Closed(link, no_memory_);
    } catch (const std::exception& error) {  // no file
      endpoint_->Close(link);
      Closed(link, Fail(Code::kResourceExhausted, "no connection: {}", error.what()));
    }
  };
  for (const NodeOutput::Dial& dial : output.dials) {
    dialed_[dial.peer].link = dial.link;
    or_close(dial.link, [&] {
      const std::string& address = dial.address;
      endpoint_->Dial(dial.link, address.empty() ? options_.address_of(dial.peer) : address);
    });
  }
  for (NodeOutput::Send& send : output.sends) {
    or_close(send.link, [&] { endpoint_->Send(send.link, std::move(send.frame)); });
  }
  for (const LinkId link : output.closes) {
    CountLink(link);
    endpoint_->Close(link);
  }
}

// Hands arrived events to the node.  Before the node judges the silence of its peers, it receives
// everything: a peer with an unread message is not silent.
void NodeThread::ReceiveEvents() {
  const Time begin = Now();
  // A process or machine that is suspended stops reading, but its clock goes on.
  const Time away = begin - std::max(received_at_, sleeps_until_);
  if (received_at_ != 0 && away > kAwayLeast) node_->WasAway(away, begin);
  received_at_ = begin;
  turn_ends_at_ = begin + kLongestTurn;
  size_t count = endpoint_->Poll(this, kEventsPerTurn);
  turn_ends_at_ = kNever;
  if (is_broken_) return;
  if (node_->verdict_at() <= begin) count += endpoint_->Poll(this, SIZE_MAX);
  if (count == 0) ++empty_polls_;
  if (node_->deadline() <= begin) node_->Tick(begin);
  Dispatch();
  const Time now = Now();
  const Time sleep = count > 0 ? 0 : std::clamp<Time>(node_->deadline() - now, 0, kLongestSleep);
  sleeps_until_ = now + sleep;
}

Time NodeThread::PollOnce() noexcept {
  std::lock_guard lock(mutex_);
  if (is_broken_) return kLongestSleep;
  try {
    ReceiveEvents();
  } catch (const Error& error) {
    Break(error);
  } catch (const std::bad_alloc&) {
    if (ForgetOrBreak(kNoLink)) sleeps_until_ = Now() + kLackRest;
  } catch (const std::exception& error) {
    static_cast<void>(error);
    BreakForLack();
  }
  return is_broken_ ? kLongestSleep : std::max<Time>(0, sleeps_until_ - Now());
}

template <typename Done>
Time NodeThread::PollBriefly(const Done& done) {
  Time sleep = PollOnce();
  while (sleep > 0 && !done() && Now() < active_ + kSpin && HasIdleCore()) sleep = PollOnce();
  if (sleep == 0) active_ = Now();
  return sleep;
}

void NodeThread::Loop() {
  const auto is_over = [this] { return turn_.stopped() || turn_.is_callers(); };
  while (turn_.BeginOwn()) {
    const Time sleep = PollBriefly(is_over);
    // A caller who came during the poll has woken the endpoint in vain.
    if (sleep > 0 && !is_over()) endpoint_->Wait(sleep);
    turn_.EndOwn();
  }
}

bool NodeThread::PollUntil(const std::function<bool()>& done, Time longest) {
  const Time deadline = Now() + longest;
  if (!turn_.BeginCaller(deadline)) return false;
  struct GiveBack {
    NodeThread* self;
    ~GiveBack() { self->turn_.EndCaller(self->is_busy_); }
  } const give_back{this};
  const auto is_over = [&] { return done() || turn_.stopped(); };
  // An answer may arrive soon.
  active_ = Now();
  while (!is_over()) {
    const Time sleep = PollBriefly(is_over);
    const Time left = deadline - Now();
    if (left <= 0) break;
    if (sleep > 0 && !is_over()) endpoint_->Wait(std::min(sleep, left));
  }
  return true;
}

void NodeThread::TakeWhatHasArrived(Time longest) {
  // The number of empty polls at the beginning of this thread's turn.
  std::optional<uint64_t> before;
  const auto has_taken = [&] {
    if (!before) before = empty_polls_;
    return empty_polls_ != *before;
  };
  PollUntil(has_taken, longest);
  GoOn();
}

}  // namespace tkv
