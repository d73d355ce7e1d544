// A thread that runs a node: it receives frames, reports the time and sends frames.

#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <type_traits>

#include "job/disk_reader.h"
#include "job/poll_turn.h"
#include "job/steady_time.h"
#include "node/node.h"
#include "transport/transport.h"

namespace tkv {

struct NodeThreadOptions {
  // Returns the address of a peer that the EPOCH does not name.
  std::function<std::string(const Peer&)> address_of;
  std::function<void(int level, const std::string& text)> log;
  // Receives the reason why a dialed link has closed.
  std::function<void(const Peer& peer, const Error& error)> failed;
  // Receives the reason why the thread can do nothing more; called once, under the node's lock.
  // Either memory was lacking where nothing could be undone, or there is a bug in this library.
  std::function<void(const Error& error)> broken;
};

// A thread with a node and its endpoint.
//
// A caller that waits for a result of the node polls the endpoint itself meanwhile.  An arriving
// frame then wakes one thread instead of two.
//
// Thread-safe.  Hooks run under its lock: on its thread, on a thread that calls Run or PollUntil,
// or on the thread that reads the disk.
class NodeThread final : private LinkHandler {
 public:
  NodeThread(std::unique_ptr<Node> node, std::unique_ptr<Endpoint> endpoint,
             NodeThreadOptions options);
  // Stops.
  ~NodeThread() override;
  NodeThread(const NodeThread&) = delete;
  NodeThread& operator=(const NodeThread&) = delete;

  // Sets a hook that is called after the node has done something.  Call it before Start.
  void OnChange(std::function<void(Node&)> hook) { on_change_ = std::move(hook); }
  // Starts the node and the thread.
  void Start();
  // Stops the thread and closes all links.
  //   blocks  until the thread has ended: at most as long as one event, or one reading from the
  //           disk, takes
  void Stop();

  // Calls f(node, now) under the lock, and sends the resulting output, even if f throws.
  template <typename F>
  auto Run(F f) {
    std::unique_lock lock(mutex_);
    const auto finish = [this] {
      Dispatch();
      WakeInTime();
    };
    try {
      if constexpr (std::is_void_v<std::invoke_result_t<F&, Node&, Time>>) {
        f(static_cast<Node&>(*node_), Now());
        finish();
      } else {
        auto result = f(static_cast<Node&>(*node_), Now());
        finish();
        return result;
      }
    } catch (...) {
      // The output that f made before it threw is sent.
      finish();
      throw;
    }
  }
  // Receives frames and runs the node's timers until the condition holds.
  //   blocks  at most so long
  //   returns  false at once if another caller does the work or the thread has stopped, else true,
  //            also if the time is over
  bool PollUntil(const std::function<bool()>& done, Time longest);
  // Does so until all frames that had arrived before the call have been handled.
  //   blocks  at most so long
  void TakeWhatHasArrived(Time longest);
  // Sets if operations are under way: the node's own thread does then not rest.
  void SetBusy(bool is_busy) { is_busy_ = is_busy; }
  // Ends the rest of the node's thread, because no caller is going to wait for the work that was
  // started.
  void GoOn() { turn_.EndRest(); }
  // See Endpoint.  Call it from within Run or the hook.
  void ReleaseSource(const Bytes& bytes) {
    if (endpoint_ != nullptr) endpoint_->ReleaseSource(bytes.data, bytes.size);
  }
  void ReleaseTarget(const Bytes& bytes) {
    if (endpoint_ != nullptr) endpoint_->ReleaseTarget(bytes.data, bytes.size);
  }
  // Stops the node for good, and closes the links that this process has dialed.  Call it from
  // within Run if work that has begun can be neither finished nor undone.
  void Break(const Error& error) noexcept;
  // Breaks for lack of memory.  Takes no memory.
  void BreakForLack() noexcept { Break(no_memory_); }
  const Error& no_memory() const { return no_memory_; }
  static Time Now() { return SteadyTime(); }
  // Returns the traffic of all links, present and former, to a peer that this process has dialed.
  // Call it from within Run.
  TrafficStats TrafficOf(const Peer& peer) const;

 private:
  // Handles an event of a link.  Without memory the node forgets the link or breaks.
  //   throws  std::bad_alloc; the endpoint then closes the link
  template <typename F>
  auto OfLink(uint64_t link, F f) {
    try {
      return f();
    } catch (const std::bad_alloc&) {
      ForgetOrBreak(link);
      throw;
    }
  }
  uint64_t Accepted() override {
    return OfLink(kNoLink, [&] { return node_->Accept(); });
  }
  void Opened(uint64_t link) override {
    OfLink(link, [&] { node_->Opened(link, Now()); });
  }
  bool IsWelcome(uint64_t link) override { return node_->IsWelcome(link); }
  void Closed(uint64_t link, const Error& reason) override;
  // Passes the end of a link to the node, by its cause.
  void ReportClosed(uint64_t link, const Error& reason);
  std::vector<Block> Land(uint64_t link, std::span<const std::byte> head,
                          const std::byte* lent) override {
    return OfLink(link, [&] { return node_->Land(link, head, lent); });
  }
  void Received(uint64_t link) override {
    OfLink(link, [&] { node_->Received(link, Now()); });
  }
  bool MayGoOn() override { return !is_broken_ && Now() < turn_ends_at_; }
  bool ForgetOrBreak(uint64_t link) noexcept;
  void Dispatch() noexcept;         // delivers all output of the node, and calls the hook
  void Deliver(NodeOutput output);  // to the endpoint, the disk's reader and the log
  void ReadEnded(uint64_t ticket) noexcept;
  void CountLink(uint64_t link);
  void ReceiveEvents();
  // Wakes the polling thread if the node's deadline is now before the end of its sleep.
  void WakeInTime() noexcept {
    if (endpoint_ != nullptr && node_->deadline() < sleeps_until_) endpoint_->Wake();
  }
  void Loop();
  // Handles the events that are there.  Returns 0 if there were some; otherwise the longest sleep
  // until the next one.
  Time PollOnce() noexcept;
  // Polls as PollOnce does, but repeats that for a moment after the last event if a core is idle.
  // Sleeping and waking take longer than most answers.
  template <typename Done>
  Time PollBriefly(const Done& done);

  std::unique_ptr<Node> node_;
  std::unique_ptr<Endpoint> endpoint_;
  NodeThreadOptions options_;
  std::function<void(Node&)> on_change_;
  struct Dialed {
    uint64_t link = 0;
    TrafficStats before;  // of former links
  };
  std::map<Peer, Dialed> dialed_;
  std::mutex mutex_;
  // The end of the polling thread's sleep; 0: no thread has polled yet.
  Time sleeps_until_ = 0;
  // The time of the last ReceiveEvents; 0: there was none.
  Time received_at_ = 0;
  // The time at which ReceiveEvents stops handling frames.  Due work then goes first, so that a
  // busy node does not look dead.
  Time turn_ends_at_ = 0;
  bool is_broken_ = false;
  // Made in time, because an error needs memory.
  const Error no_memory_{Code::kResourceExhausted, "there is no memory to go on with"};
  std::thread thread_;
  // Made for the first reading.
  std::unique_ptr<DiskReader> reader_;

  std::atomic<uint64_t> empty_polls_{0};  // polls without an event

  PollTurn turn_{[this] { endpoint_->Wake(); }};
  // The time of the last event, or of the arrival of the last caller.  The thread that has the turn
  // reads and writes it.
  Time active_ = 0;
  std::atomic<bool> is_busy_{false};
};

}  // namespace tkv
