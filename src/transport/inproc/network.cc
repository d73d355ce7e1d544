#include "transport/inproc/network.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>

#include "base/format.h"

namespace tkv {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// A frame under way.  Several events refer to it if it arrives more than once.
struct Carried {
  Frame frame;
  int readers = 0;  // deliveries that are reading its bodies
};

struct Event {
  enum class Kind : uint8_t { kAccept, kOpened, kClosed, kFrame };
  Kind kind{};
  int64_t due = 0;
  uint64_t order = 0;  // order of events that are due together
  uint64_t connection = 0;
  uint64_t link = 0;                 // kClosed of a removed connection: the receiver's name for it
  std::shared_ptr<Carried> carried;  // kFrame: the frame
  std::string reason;
};

// An index of the bodies of frames under way, by the start of their memory.  A frame that has
// arrived leaves its entries behind.  They are removed in bulk, so that the cost of a frame does
// not grow with the number of frames.
class BodyIndex {
 public:
  void Add(const std::shared_ptr<Carried>& carried) {
    for (const Bytes& body : carried->frame.bodies) bodies_.emplace(body.data, carried);
    if (bodies_.size() < sweep_at_) return;
    std::erase_if(bodies_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = 2 * bodies_.size() + kSweepLeast;
  }
  // Calls f(frame) for each frame with a body that begins in this memory.  Keeps the entries for
  // which f returns true.
  template <typename F>
  void KeepWhere(const void* data, size_t bytes, const F& f) {
    const auto* const begin = static_cast<const std::byte*>(data);
    auto at = bodies_.lower_bound(begin);
    while (at != bodies_.end() && at->first < begin + bytes) {
      const std::shared_ptr<Carried> carried = at->second.lock();
      at = carried != nullptr && f(carried.get()) ? std::next(at) : bodies_.erase(at);
    }
  }

 private:
  static constexpr size_t kSweepLeast = 1024;
  std::multimap<const std::byte*, std::weak_ptr<Carried>> bodies_;
  size_t sweep_at_ = kSweepLeast;
};

// An end of a connection.
struct End {
  std::string address;
  uint64_t link = 0;  // 0: not accepted yet
  bool open = true;   // false: this side has closed it
  int64_t last_due = 0;
};

struct InprocConnection {
  End ends[2];  // the dialer, the acceptor
};

}  // namespace

struct InprocNetwork::State {
  // The events that arrive at one address.
  struct Inbox {
    std::mutex mutex;  // protects only `wake`, and the sleeping thread
    std::condition_variable arrived;
    bool wake = false;
    std::map<std::pair<int64_t, uint64_t>, Event> events;  // by due time, then order
    std::map<uint64_t, std::pair<uint64_t, int>> links;    // link: connection, index of the end
    std::deque<std::pair<std::string, Event>> held;  // held by cuts, with the sender's address
    std::string copies_from;  // address whose memory is being read here; empty: none
  };

  explicit State(InprocOptions o) : options(std::move(o)) {}

  int64_t Now() const { return options.clock ? options.clock() : 0; }

  void Post(const std::string& to, Event event) {
    const auto found = inboxes.find(to);
    if (found == inboxes.end()) return;
    Inbox& inbox = *found->second;
    event.order = ++order;
    inbox.events.emplace(std::pair(event.due, event.order), std::move(event));
    std::lock_guard lock(inbox.mutex);
    inbox.wake = true;
    inbox.arrived.notify_one();
  }

  // Sends an event from one end to the other, in order within its direction.
  void PostAcross(uint64_t id, int from, Event event, size_t bytes) {
    const auto found = connections.find(id);
    if (found == connections.end()) return;
    End& target = found->second.ends[1 - from];
    const std::string& source = found->second.ends[from].address;
    const int64_t now = Now();
    int64_t delay = 0;
    if (options.faults != nullptr) {
      delay = options.faults->Delay(source, target.address, bytes);
      if (delay < 0) return Lose(id, "the connection is lost");
    }
    event.connection = id;
    event.due = target.last_due = std::max(target.last_due, now + delay);
    if (options.faults != nullptr) {
      const auto inbox = inboxes.find(target.address);
      if (inbox == inboxes.end()) return;
      auto& held = inbox->second->held;  // events already held stay in front
      const bool behind = std::any_of(held.begin(), held.end(), [&](const auto& entry) {
        return entry.second.connection == id;
      });
      if (behind || options.faults->IsCut(source, target.address)) {
        held.emplace_back(source, std::move(event));
        return;
      }
    }
    int copies = 1;
    if (options.faults != nullptr && event.kind == Event::Kind::kFrame) {
      copies = options.faults->Copies(source, target.address);
    }
    for (int i = 1; i < copies; ++i) Post(target.address, event);
    Post(target.address, std::move(event));
  }

  // Ends a connection: reports the end to both sides and drops its frames under way.
  void Lose(uint64_t id, const std::string& reason) {
    const auto found = connections.find(id);
    if (found == connections.end()) return;
    for (int side = 0; side < 2; ++side) Tell(id, found->second.ends[side], reason);
    connections.erase(found);
  }

  // Replaces a frame's bodies in this memory by copies.
  static void CopyBodies(Frame* frame, const void* data, size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(data);
    for (Bytes& body : frame->bodies) {
      if (body.data < begin || body.data >= begin + bytes) continue;
      const auto copy = std::make_shared<std::vector<std::byte>>(body.data, body.data + body.size);
      body = {copy->data(), body.size, copy};
    }
  }

  // Waits until no endpoint reads the memory of this address any more, including over connections
  // that are lost.
  void AwaitCopied(const std::string& address, std::unique_lock<std::mutex>* lock) {
    copied.wait(*lock, [&] {
      return std::none_of(inboxes.begin(), inboxes.end(),
                          [&](const auto& entry) { return entry.second->copies_from == address; });
    });
  }

  void Tell(uint64_t id, const End& end, const std::string& reason) {
    const auto inbox = inboxes.find(end.address);
    if (inbox == inboxes.end()) return;
    std::erase_if(inbox->second->events,
                  [&](const auto& entry) { return entry.second.connection == id; });
    std::erase_if(inbox->second->held,
                  [&](const auto& entry) { return entry.second.connection == id; });
    if (!end.open || end.link == 0) return;
    inbox->second->links.erase(end.link);
    Event closed;
    closed.kind = Event::Kind::kClosed;
    closed.due = Now();
    closed.link = end.link;
    closed.reason = reason;
    Post(end.address, std::move(closed));
  }

  InprocOptions options;
  mutable std::mutex mutex;
  std::condition_variable copied;
  BodyIndex bodies;
  uint64_t order = 0;
  uint64_t last_connection = 0;
  std::map<std::string, std::shared_ptr<Inbox>> inboxes;
  std::map<uint64_t, InprocConnection> connections;
};

namespace {

using State = InprocNetwork::State;

class InprocEndpoint final : public Endpoint {
 public:
  InprocEndpoint(std::shared_ptr<State> state, std::string address,
                 std::shared_ptr<State::Inbox> inbox)
      : state_(std::move(state)), address_(std::move(address)), inbox_(std::move(inbox)) {}

  ~InprocEndpoint() override {
    std::lock_guard lock(state_->mutex);
    state_->inboxes.erase(address_);
    try {
      std::vector<uint64_t> mine;
      for (const auto& [id, connection] : state_->connections) {
        if (connection.ends[0].address == address_ || connection.ends[1].address == address_) {
          mine.push_back(id);
        }
      }
      for (const uint64_t id : mine) state_->Lose(id, "the peer is gone");
    } catch (const std::bad_alloc&) {
      return;  // the peers learn of it by the silence
    }
  }

  const std::string& address() const override { return address_; }

  void Dial(uint64_t link, const std::string& address) override {
    std::lock_guard lock(state_->mutex);
    if (!state_->inboxes.contains(address)) {
      Event refused;
      refused.kind = Event::Kind::kClosed;
      refused.due = state_->Now();
      refused.link = link;
      refused.reason = Format("nobody listens at {}", address);
      return state_->Post(address_, std::move(refused));
    }
    const uint64_t id = ++state_->last_connection;
    InprocConnection& connection = state_->connections[id];
    connection.ends[0].address = address_;
    connection.ends[0].link = link;
    connection.ends[1].address = address;
    inbox_->links[link] = {id, 0};
    Event accept;
    accept.kind = Event::Kind::kAccept;
    state_->PostAcross(id, 0, std::move(accept), 0);
  }

  void Send(uint64_t link, Frame frame) override {
    std::lock_guard lock(state_->mutex);
    const auto found = inbox_->links.find(link);
    if (found == inbox_->links.end()) return;
    const auto [id, side] = found->second;
    Event event;
    event.kind = Event::Kind::kFrame;
    const size_t bytes = frame.head.size() + frame.body_bytes;
    traffic_[link].wire_out_bytes += bytes;
    event.carried = std::make_shared<Carried>(std::move(frame));
    state_->bodies.Add(event.carried);
    state_->PostAcross(id, side, std::move(event), bytes);
  }

  // Returns after any delivery that is reading this endpoint's memory has ended.
  void Close(uint64_t link) override {
    std::unique_lock lock(state_->mutex);
    const auto found = inbox_->links.find(link);
    if (found == inbox_->links.end()) return;
    const auto [id, side] = found->second;
    inbox_->links.erase(found);
    traffic_.erase(link);
    const auto connection = state_->connections.find(id);
    if (connection == state_->connections.end()) return;
    connection->second.ends[side].open = false;
    state_->AwaitCopied(address_, &lock);
    if (!state_->connections.contains(id)) return;
    Event closed;
    closed.kind = Event::Kind::kClosed;
    closed.reason = "closed by the peer";
    state_->PostAcross(id, side, std::move(closed), 0);
  }

  void ReleaseSource(const void* data, size_t bytes) override {
    std::unique_lock lock(state_->mutex);
    state_->copied.wait(lock, [&] {  // deliveries that have begun to read finish first
      bool is_read = false;
      state_->bodies.KeepWhere(data, bytes, [&](Carried* carried) {
        if (carried->readers == 0) State::CopyBodies(&carried->frame, data, bytes);
        is_read = is_read || carried->readers > 0;
        return carried->readers > 0;
      });
      return !is_read;
    });
  }
  void ReleaseTarget(const void*, size_t) override {}  // bodies are copied at once

  size_t Poll(LinkHandler* handler, size_t events_max) override {
    size_t count = 0;
    while (count < events_max && (count == 0 || handler->MayGoOn()) && Step(handler)) ++count;
    return count;
  }

  bool Wait(int64_t nanoseconds) override {
    std::unique_lock lock(inbox_->mutex);
    const bool woken = inbox_->arrived.wait_for(lock, std::chrono::nanoseconds(nanoseconds),
                                                [&] { return inbox_->wake; });
    inbox_->wake = false;
    return woken;
  }

  void Wake() override {
    std::lock_guard lock(inbox_->mutex);
    inbox_->wake = true;
    inbox_->arrived.notify_one();
  }

  TrafficStats Traffic(uint64_t link) const override {
    const auto found = traffic_.find(link);
    return found == traffic_.end() ? TrafficStats() : found->second;
  }

 private:
  // Delivers one event.  Returns false if none is due.
  bool Step(LinkHandler* handler) {
    std::unique_lock lock(state_->mutex);
    if (inbox_->events.empty()) return false;
    const auto first = inbox_->events.begin();
    if (first->second.due > state_->Now()) return false;
    Event event = std::move(first->second);
    inbox_->events.erase(first);
    if (event.link != 0) {
      lock.unlock();
      handler->Closed(event.link, Error(Code::kUnavailable, event.reason));
      traffic_.erase(event.link);
      return true;
    }
    const auto found = state_->connections.find(event.connection);
    if (found == state_->connections.end()) return true;
    const int side = found->second.ends[1].address == address_ ? 1 : 0;
    End& end = found->second.ends[side];
    switch (event.kind) {
      case Event::Kind::kAccept: {
        lock.unlock();
        const uint64_t link = handler->Accepted();
        lock.lock();
        const auto again = state_->connections.find(event.connection);
        if (again == state_->connections.end()) {
          lock.unlock();
          handler->Closed(link, Error(Code::kUnavailable, "the connection is lost"));
          return true;
        }
        again->second.ends[1].link = link;
        inbox_->links[link] = {event.connection, 1};
        Event opened;
        opened.kind = Event::Kind::kOpened;
        state_->PostAcross(event.connection, 1, std::move(opened), 0);
        return true;
      }
      case Event::Kind::kOpened:
        if (!end.open) return true;
        lock.unlock();
        handler->Opened(end.link);
        return true;
      case Event::Kind::kClosed: {
        const uint64_t link = end.link;
        const bool tell = end.open;
        inbox_->links.erase(link);
        state_->connections.erase(found);
        lock.unlock();
        if (tell) handler->Closed(link, Error(Code::kUnavailable, event.reason));
        traffic_.erase(link);
        return true;
      }
      case Event::Kind::kFrame: {
        if (!end.open) return true;
        const uint64_t link = end.link;
        inbox_->copies_from = found->second.ends[1 - side].address;
        ++event.carried->readers;
        lock.unlock();
        Deliver(handler, event.connection, link, std::move(event.carried));
        return true;
      }
    }
    return true;
  }

  // Marks the sender's memory as being read while it lives.  Its destructor releases the memory,
  // also after an exception, before the receiver can answer that it has the frame.
  struct Copying {
    InprocEndpoint* self;
    std::shared_ptr<Carried> carried;
    ~Copying() {
      // The owners of the bodies are destroyed before anybody is notified, and without the lock.
      std::vector<Bytes> read;
      {
        std::lock_guard lock(self->state_->mutex);
        const bool is_last = --carried->readers == 0 && carried.use_count() == 1;
        if (is_last) read.swap(carried->frame.bodies);
        self->inbox_->copies_from.clear();
      }
      read.clear();
      self->state_->copied.notify_all();
    }
  };

  void Deliver(LinkHandler* handler, uint64_t connection, uint64_t link,
               std::shared_ptr<Carried> carried) {
    const Frame& frame = carried->frame;
    traffic_[link].wire_in_bytes += frame.head.size() + frame.body_bytes;
    const uint64_t lends_every = state_->options.lends_every;
    const bool lends = lends_every > 0 && connection % lends_every == 0 && frame.bodies.size() == 1;
    std::vector<std::byte> lent;
    std::optional<Error> refused;
    try {
      const Copying copying{this, std::move(carried)};
      if (lends) {
        const Bytes& body = frame.bodies[0];
        lent.assign(body.data, body.data + body.size);
      }
      const std::vector<Block> blocks = handler->Land(link, std::as_bytes(std::span(frame.head)),
                                                      lent.empty() ? nullptr : lent.data());
      for (size_t i = 0; i < blocks.size() && i < frame.bodies.size(); ++i) {
        const Bytes& body = frame.bodies[i];
        if (blocks[i]) std::memcpy(blocks[i].data, body.data, body.size);
      }
    } catch (const Error& error) {
      refused = error;
    }
    if (!refused) {
      handler->Received(link);
      std::fill(lent.begin(), lent.end(), std::byte{0xDB});
      return;
    }
    Close(link);
    handler->Closed(link, Error(Code::kInvalidArgument, refused->what()));
  }

  const std::shared_ptr<State> state_;
  const std::string address_;
  const std::shared_ptr<State::Inbox> inbox_;
  std::map<uint64_t, TrafficStats> traffic_;  // by link
};

}  // namespace

InprocNetwork::InprocNetwork(InprocOptions options)
    : state_(std::make_shared<State>(std::move(options))) {}

InprocNetwork::~InprocNetwork() = default;

std::unique_ptr<Endpoint> InprocNetwork::Listen(const std::string& address) {
  std::lock_guard lock(state_->mutex);
  auto inbox = std::make_shared<State::Inbox>();
  if (!state_->inboxes.emplace(address, inbox).second) {
    throw Fail(Code::kAlreadyExists, "listen: the address {} is taken", address);
  }
  return std::make_unique<InprocEndpoint>(state_, address, std::move(inbox));
}

int64_t InprocNetwork::NextArrival(const std::string& address) const {
  std::lock_guard lock(state_->mutex);
  const auto found = state_->inboxes.find(address);
  if (found == state_->inboxes.end() || found->second->events.empty()) return kNever;
  return found->second->events.begin()->first.first;
}

void InprocNetwork::Sever(const std::string& address, bool silently) {
  std::lock_guard lock(state_->mutex);
  std::vector<uint64_t> lost;
  for (auto& [id, connection] : state_->connections) {
    for (End& end : connection.ends) {
      if (end.address != address) continue;
      if (silently) {
        end.address = "(gone)";  // frames sent there reach nobody
      } else {
        lost.push_back(id);
      }
      break;
    }
  }
  for (const uint64_t id : lost) state_->Lose(id, "the connection is lost");
}

void InprocNetwork::Sever(const std::string& a, const std::string& b) {
  std::lock_guard lock(state_->mutex);
  std::vector<uint64_t> lost;
  for (const auto& [id, connection] : state_->connections) {
    const std::string& first = connection.ends[0].address;
    const std::string& second = connection.ends[1].address;
    if ((first == a && second == b) || (first == b && second == a)) lost.push_back(id);
  }
  for (const uint64_t id : lost) state_->Lose(id, "the connection is lost");
}

void InprocNetwork::Release() {
  std::lock_guard lock(state_->mutex);
  for (auto& [address, inbox] : state_->inboxes) {
    std::deque<std::pair<std::string, Event>> still;
    while (!inbox->held.empty()) {
      auto [source, event] = std::move(inbox->held.front());
      inbox->held.pop_front();
      if (state_->options.faults != nullptr && state_->options.faults->IsCut(source, address)) {
        still.emplace_back(std::move(source), std::move(event));
        continue;
      }
      event.due = std::max(event.due, state_->Now());
      state_->Post(address, std::move(event));
    }
    inbox->held = std::move(still);
  }
}

}  // namespace tkv
