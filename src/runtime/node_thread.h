// A thread that runs a node: frames in, time, frames out.

#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>

#include "node/node.h"
#include "runtime/disk_reader.h"
#include "transport/transport.h"

namespace tkv {

struct NodeThreadOptions {
  // Where a peer is whose address the EPOCH does not have.
  std::function<std::string(const Peer&)> address_of;
  std::function<void(int level, const std::string& text)> log;
  // Told why a dialed link has closed.
  std::function<void(const Peer& peer, const Error& error)> failed;
  // Told once, under the node's lock, why the thread can do nothing more: memory is lacking where
  // nothing can be undone, or this is a bug of ours.
  std::function<void(const Error& error)> broken;
};

// A thread that waits for something of the node does its work meanwhile: what arrives wakes one
// thread and not two.  Then the node's own thread rests for a moment, because most threads that
// have waited soon wait again.
//
// Thread-safe.  Hooks run on its thread, or on the one that called Run, under its lock.
class NodeThread final : private LinkHandler {
 public:
  NodeThread(std::unique_ptr<Node> node, std::unique_ptr<Endpoint> endpoint,
             NodeThreadOptions options);
  ~NodeThread() override;  // stops
  NodeThread(const NodeThread&) = delete;
  NodeThread& operator=(const NodeThread&) = delete;

  // Called after the node has done something; before Start.
  void OnChange(std::function<void(Node&)> hook) { on_change_ = std::move(hook); }
  void Start();
  //   blocks  until the thread has ended: at most as long as one event takes
  void Stop();

  // Calls f(node, now) with the node to itself, and sends what comes of it, also where f throws.
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
    } catch (...) {  // of f: what it did before is sent
      finish();
      throw;
    }
  }
  // Does the work of the node until the condition holds.
  //   blocks  at most so long
  //   returns  false at once where another caller is at it already
  bool PollUntil(const std::function<bool()>& done, Time longest);
  // Does the work of the node until nothing is left of what has arrived before.
  //   blocks  at most so long
  void TakeWhatHasArrived(Time longest);
  // Whether something is under way, for which the node's thread may not rest.
  void SetBusy(bool is_busy) { is_busy_ = is_busy; }
  // Nobody is going to wait for what has been started: it goes on at once.
  void GoOn();
  // From within Run or the hook: see Endpoint.
  void ReleaseSource(const Bytes& bytes) {
    if (endpoint_ != nullptr) endpoint_->ReleaseSource(bytes.data, bytes.size);
  }
  void ReleaseTarget(const Bytes& bytes) {
    if (endpoint_ != nullptr) endpoint_->ReleaseTarget(bytes.data, bytes.size);
  }
  // From within Run, where what has begun can be neither ended nor undone: the links close, and the
  // node does nothing more.
  void Break(const Error& error) noexcept;
  static Time Now();
  // From within Run: what has passed the links to a peer that this process has dialed, the earlier
  // ones too.
  TrafficStats TrafficOf(const Peer& peer) const;

 private:
  uint64_t Accepted() override { return node_->Accept(); }
  void Opened(uint64_t link) override { node_->Opened(link, Now()); }
  bool IsWelcome(uint64_t link) override { return node_->IsWelcome(link); }
  void Closed(uint64_t link, const Error& reason) override;
  std::vector<Block> Land(uint64_t link, std::span<const std::byte> head,
                          const std::byte* lent) override {
    return node_->Land(link, head, lent);
  }
  void Received(uint64_t link) override { node_->Received(link, Now()); }
  bool MayGoOn() override { return Now() < turn_ends_at_; }
  void Dispatch() noexcept;
  void Deliver(NodeOutput output);
  void HasRead(uint64_t ticket) noexcept;
  void CountLink(uint64_t link);
  void Read();
  // Whoever sleeps does so until the node's deadline, which may be earlier now.
  void WakeInTime() noexcept {
    if (endpoint_ != nullptr && node_->deadline() < sleeps_until_) endpoint_->Wake();
  }
  void Loop();
  // Handles what is there; how long it may sleep before there is something, 0 where there was.
  Time PollOnce() noexcept;
  // The same, and looks again for a moment after the last event where a core has nothing else to
  // do: to sleep and to be woken takes longer than most answers.
  template <typename Done>
  Time PollBriefly(const Done& done);

  std::unique_ptr<Node> node_;
  std::unique_ptr<Endpoint> endpoint_;
  NodeThreadOptions options_;
  std::function<void(Node&)> on_change_;
  struct Dialed {
    uint64_t link = 0;
    TrafficStats before;  // of earlier links
  };
  std::map<Peer, Dialed> dialed_;
  std::mutex mutex_;
  Time sleeps_until_ = 0;  // whoever polls, with the lock; 0: nobody
  Time read_at_ = 0;       // when somebody last began to read; 0: nobody yet
  Time turn_ends_at_ = 0;  // when reading makes way for what is due: a busy node is not a dead one
  bool is_broken_ = false;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
  std::unique_ptr<DiskReader> reader_;  // from the first reading on

  std::atomic<uint64_t> empty_polls_{0};  // that have found nothing

  // Whose turn it is to poll.
  std::mutex turn_;
  std::condition_variable turn_changed_;
  bool own_polls_ = false;                 // the node's thread is at it
  Time active_ = 0;                        // when whoever polls has last seen an event
  std::atomic<bool> caller_polls_{false};  // a caller is, or is about to
  std::atomic<bool> is_busy_{false};
  Time others_wait_until_ = 0;  // callers that have not got the turn
  Time rest_until_ = 0;         // the node's thread does, as long as nobody lets it go on
  Time own_sleeps_until_ = 0;   // as it was told
};

}  // namespace tkv
