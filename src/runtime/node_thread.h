// A thread that runs a node: frames in, time, frames out.

#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "node/node.h"
#include "transport/transport.h"

namespace tkv {

struct NodeThreadOptions {
  // Where a peer is whose address the EPOCH does not have.
  std::function<std::string(const Peer&)> address_of;
  std::function<void(int level, const std::string& text)> log;
  // Told why a dialed link has closed.
  std::function<void(const Peer& peer, const Error& error)> failed;
};

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

  // Calls f(node, now) with the node to itself, and sends what comes of it.
  template <typename F>
  auto Run(F f) {
    std::unique_lock lock(mutex_);
    struct Finish {
      NodeThread* self;
      ~Finish() { self->Dispatch(); }
    } finish{this};
    return f(static_cast<Node&>(*node_), Now());
  }
  // From within Run or the hook: see Endpoint.
  void Release(const void* data, size_t bytes) {
    if (endpoint_ != nullptr) endpoint_->Release(data, bytes);
  }
  static Time Now();

 private:
  uint64_t Accepted() override { return node_->Accept(); }
  void Opened(uint64_t link) override { node_->Opened(link, Now()); }
  void Closed(uint64_t link, const Error& reason) override;
  std::vector<Block> Land(uint64_t link, std::span<const std::byte> head,
                          const std::byte* lent) override {
    return node_->Land(link, head, lent);
  }
  void Received(uint64_t link) override { node_->Received(link, Now()); }
  void Dispatch();
  void Loop();

  std::unique_ptr<Node> node_;
  std::unique_ptr<Endpoint> endpoint_;
  NodeThreadOptions options_;
  std::function<void(Node&)> on_change_;
  std::mutex mutex_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> waiting_{0};  // callers that want the lock
  std::thread thread_;
};

}  // namespace tkv
