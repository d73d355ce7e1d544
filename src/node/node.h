// Connects the state machines of one process (head, server, client) to network links: frames in,
// frames out.  Pure, like the machines: the same code runs in a process with threads and in a
// simulation.
//
// A node decodes a frame as soon as the frame's head has arrived.  The machine then chooses the
// memory for the bodies.  The machine gets the messages when the whole frame has arrived.  Outgoing
// messages of one event share frames.

#pragma once

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/client.h"
#include "head/head.h"
#include "head/member.h"
#include "node/server_trace.h"
#include "rows/row_disk.h"
#include "server/shard.h"
#include "wire/frame.h"

namespace tkv {

// Requests of a node to its transport.
struct NodeOutput {
  struct Dial {
    LinkId link;
    Peer peer;
    std::string address;  // from the EPOCH; may be empty
  };
  struct Send {
    LinkId link;
    Frame frame;
  };
  std::vector<Dial> dials;
  std::vector<Send> sends;
  std::vector<LinkId> closes;  // after the sends
  // Rows to read into the system's cache before the message with this ticket is handled: see
  // Node::ReadEnded.
  struct Reading {
    uint64_t ticket;
    std::vector<DiskRange> ranges;
  };
  std::vector<Reading> readings;
  std::vector<Effects::Notice> notices;

  bool empty() const {
    return dials.empty() && sends.empty() && closes.empty() && notices.empty() && readings.empty();
  }
};

// Sees every message of a node; for checks.
class MessageTap {
 public:
  virtual ~MessageTap() = default;
  virtual void Sent(LinkId link, const Message& message) = 0;
  // Called before the receiver handles the message.
  //   state  the receiver's state for this message
  virtual void Received(LinkId link, const Message& message, const char* state) = 0;
};

class Node {
 public:
  //   own_block_from  a body of at least so many bytes gets its own block; the smaller bodies of a
  //                   frame share one
  explicit Node(BufferPool* pool, size_t own_block_from = kCoalesceBelowBytes)
      : pool_(pool), own_block_from_(own_block_from) {}
  virtual ~Node() = default;

  // Dials the head.  A HeadNode has nobody to dial.
  virtual void Start(Time now) = 0;
  // Returns the id of a new link whose other side has dialed.  The link is open.
  LinkId Accept();
  // Handles the success of a Dial.
  void Opened(LinkId link, Time now);
  // Handles a lost connection or a failed dial.  Does nothing for a link in NodeOutput::closes.
  void Closed(LinkId link, Time now);
  // Like Closed.  The process on the other side has ended.
  void PeerEnded(LinkId link, Time now);
  // Like Closed.  Dialing again is useless, because the peer has another version or token.
  void Refused(LinkId link, const Error& error, Time now);
  // Like Closed.  This machine has too few resources for a connection.
  void LackedResources(LinkId link, const Error& error, Time now);
  // Decodes the head of a frame.  Returns one block for each body, in order.  The caller copies the
  // body into it, unless the block has no data: the body is dropped, or read from `lent`.
  //   lent    memory with all bodies, one behind the other, valid until Received returns; or null
  //   throws  kCancelled (the link is closed), or an error if the head is malformed
  std::vector<Block> Land(LinkId link, std::span<const std::byte> head,
                          const std::byte* lent = nullptr);
  // Handles the frame that Land has decoded.  Call it when all bodies have arrived.
  void Received(LinkId link, Time now);
  void Tick(Time now);
  // Handles the messages that waited for a NodeOutput::Reading.  Call it also if the reading has
  // failed: the machine then reads the rows itself.
  void ReadEnded(uint64_t ticket, Time now);
  virtual Time deadline() const = 0;
  // Returns the time at which Tick judges a peer's silence.  Call Received before that Tick for all
  // frames that have arrived by then.
  virtual Time verdict_at() const = 0;
  // Discounts a time in which this process did not read: it does not count as a peer's silence.
  virtual void WasAway(Time away, Time now) = 0;
  // Undoes the rest of an event for which memory was lacking, and forgets its link.  Needs no
  // memory.  Returns false if the node cannot go on.
  //   link  kNoLink: the event was not one of a link
  virtual bool Forget(LinkId /*link*/) noexcept { return false; }
  // Returns true if effects of an event are lost for lack of memory, so that the node cannot go on.
  bool is_unsound() const { return is_unsound_; }
  // Returns true if the link's peer is known to be part of the job: this node has welcomed or
  // dialed it.
  bool IsWelcome(LinkId link) const;
  NodeOutput TakeOutput() { return std::exchange(output_, {}); }
  void SetTap(MessageTap* tap) { tap_ = tap; }
  const Peer* DialedPeer(LinkId link) const;  // null: the other side has dialed

 protected:
  virtual void OnOpened(LinkId link, const Peer* dialed, Time now) = 0;
  virtual void OnClosed(LinkId link, const Peer* dialed, Time now) = 0;
  virtual void OnPeerEnded(LinkId, Time) {}
  virtual void OnRefused(const Peer& /*dialed*/, const Error& /*error*/) {}
  virtual void OnLackOfResources(const Peer& /*dialed*/, const Error& /*error*/, Time /*now*/) {}
  //   low  the header's: the peer needs no answers to operations below this number any more
  virtual void OnHeader(LinkId, uint64_t /*low*/) {}
  virtual void OnMessage(LinkId link, const Peer* dialed, Message&& message, Time now) = 0;
  virtual void OnReadEnded(uint64_t /*ticket*/, Time /*now*/) {}
  virtual void OnWholeFrame(Time) {}  // called after OnMessage for all messages of a frame
  virtual void OnTick(Time now) = 0;
  virtual Block OnLanding(LinkId link, const Message& message) = 0;
  // Returns the `low` of the headers that this node sends.
  virtual uint64_t LowOf(LinkId) { return 0; }
  // Returns the number of the newest EPOCH, which the headers carry, too.
  virtual uint64_t EpochNumber() const = 0;
  virtual std::string AddressOf(const Peer&) const { return {}; }
  // Returns the machine's state for this message, for the table of coverage.
  virtual const char* StateFor(LinkId link, const Peer* dialed, const Message& message) const = 0;

  // Passes a message to the machine.  If the payload is malformed, closes the link.
  //   returns  true if the payload was valid
  bool Handle(LinkId link, const Peer* dialed, Message&& message, Time now);
  // Turns `effects_` into output.  Forgets the links that an effect closes; calls no OnClosed.
  //   throws  std::bad_alloc; the node has forgotten the effects, or it is unsound
  void Flush();
  // Drops the link and all effects that are not yet output.
  void DropEffects(LinkId link) noexcept;
  // Has the transport read these ranges, and call ReadEnded then.
  void ReadDisk(uint64_t ticket, std::vector<DiskRange> ranges) {
    output_.readings.push_back({ticket, std::move(ranges)});
  }
  BufferPool* pool() const { return pool_; }

  Effects effects_;

 private:
  friend class StateWriter;  // for checks: compares the states of machines
  struct Link {
    bool dialed = false;
    bool open = false;
    bool proved = false;  // the peer has been welcomed, or has welcomed us
    Peer peer;
    uint64_t low = 0;              // of the frame whose bodies are arriving
    std::vector<Message> landing;  // messages of that frame
  };

  void FinishFrame(LinkId link, FrameBuilder* builder);  // and outputs it
  void MakeOutput();

  BufferPool* pool_;
  size_t own_block_from_;
  MessageTap* tap_ = nullptr;
  LinkId last_link_ = 0;
  std::map<LinkId, Link> links_;
  std::vector<Message> received_;  // messages of the frame that Received handles
  std::map<LinkId, FrameBuilder> builders_;
  std::vector<LinkId> built_;  // links with messages in their builders, during a Flush
  NodeOutput output_;
  bool is_unsound_ = false;
};

class HeadNode final : public Node {
 public:
  HeadNode(HeadOptions options, BufferPool* pool, Time now)
      : Node(pool), head_(std::move(options), now) {}
  void Start(Time) override {}
  Time deadline() const override { return head_.deadline(); }
  Time verdict_at() const override { return head_.deadline(); }
  void WasAway(Time away, Time now) override { head_.WasAway(away, now); }
  const Head& head() const { return head_; }
  // As Head::Exited and Head::Gone: what a launcher says of the processes that it has started.
  void Exited(Role role, Rank index, uint64_t incarnation);
  void Gone(Role role, Rank index, bool has_failed);
  // The head goes on.  Members that miss an EPOCH learn of it by their next PING.
  bool Forget(LinkId link) noexcept override;

 private:
  friend class StateWriter;  // for checks: compares the states of machines
  template <typename Change>
  void ChangeMembership(Change change);
  void OnOpened(LinkId, const Peer*, Time) override {}
  void OnClosed(LinkId link, const Peer*, Time now) override { head_.Closed(link, now); }
  void OnPeerEnded(LinkId link, Time) override { head_.Ended(link, &effects_); }
  void OnMessage(LinkId link, const Peer* dialed, Message&& message, Time now) override;
  void OnTick(Time now) override { head_.Tick(now, &effects_); }
  Block OnLanding(LinkId, const Message&) override { return {}; }
  uint64_t EpochNumber() const override { return head_.epoch().number; }
  const char* StateFor(LinkId link, const Peer*, const Message&) const override {
    return head_.StateFor(link);
  }

  Head head_;
};

class ServerNode final : public Node {
 public:
  ServerNode(MemberOptions member, ShardOptions shard, BufferPool* pool)
      : Node(pool, shard.adopt_from_bytes),
        member_(std::move(member)),
        shard_(std::move(shard), pool) {}
  void Start(Time now) override;
  Time deadline() const override { return member_.deadline(); }
  Time verdict_at() const override { return member_.verdict_at(); }
  void WasAway(Time away, Time now) override { member_.WasAway(away, now); }
  const Shard& shard() const { return shard_; }
  // Sends GOODBYE to the head.  The server still serves until it is stopped.
  void Leave();
  bool has_left() const { return has_left_; }  // the head has answered the GOODBYE
  void AddListener(ShardListener* listener) { shard_.AddListener(listener); }
  void RemoveListener(ShardListener* listener) { shard_.RemoveListener(listener); }
  // Sets the clock of traces; see ServerTrace.
  void SetClock(ServerTrace::Clock clock) { trace_.SetClock(std::move(clock)); }
  const Member& member() const { return member_; }

 private:
  friend class StateWriter;  // for checks: compares the states of machines
  void OnOpened(LinkId link, const Peer* dialed, Time now) override;
  void OnClosed(LinkId link, const Peer* dialed, Time now) override;
  void OnPeerEnded(LinkId link, Time now) override;
  void OnRefused(const Peer&, const Error& error) override { member_.Refuse(error); }
  void OnHeader(LinkId link, uint64_t low) override { shard_.Header(link, low); }
  void OnMessage(LinkId link, const Peer* dialed, Message&& message, Time now) override;
  void OnTick(Time now) override { member_.Tick(now, &effects_); }
  Block OnLanding(LinkId link, const Message& message) override;
  uint64_t EpochNumber() const override { return member_.epoch().number; }
  const char* StateFor(LinkId link, const Peer* dialed, const Message& message) const override {
    return dialed != nullptr ? member_.State() : shard_.StateFor(link, message);
  }

  // A message that waits for its rows to be read from the disk, or for such a message before it.
  struct Held {
    Message message;
    uint64_t ticket = 0;  // of its reading; 0: none, or done
  };
  static constexpr size_t kHeldMax = 4096;                 // messages of a link
  static constexpr size_t kHeldBytes = size_t{256} << 20;  // their bodies

  // Returns true if the message has to wait, and keeps it.
  bool HoldForDisk(LinkId link, Message* message);
  void OnReadEnded(uint64_t ticket, Time now) override;
  void HandleHeld(LinkId link, bool waits, Time now);
  void OnClientMessage(LinkId link, Message&& message, Time now);
  void OnTrace(LinkId link, const SessionId& session, const Message& message, Time now);
  void EndSpans(size_t sent_before);

  Member member_;
  Shard shard_;
  ServerTrace trace_;
  std::map<LinkId, std::deque<Held>> held_;
  std::map<uint64_t, LinkId> tickets_;
  uint64_t last_ticket_ = 0;
  bool handles_held_ = false;  // HandleHeld is handling a held message
  bool has_left_ = false;
};

// A worker or an observer.
class ClientNode final : public Node {
 public:
  ClientNode(MemberOptions member, ClientOptions client, BufferPool* pool)
      : Node(pool), role_(member.role), member_(std::move(member)), client_(std::move(client)) {}
  void Start(Time now) override;
  Time deadline() const override { return std::min(member_.deadline(), client_.deadline()); }
  Time verdict_at() const override { return member_.verdict_at(); }
  void WasAway(Time away, Time now) override { member_.WasAway(away, now); }
  // Starts an operation of the user.  Call it only if joined().
  OpId Begin(Operation operation, Time now);
  // Starts several operations, whose messages share frames.
  std::vector<OpId> Begin(std::vector<Operation> operations, Time now);
  // As the functions of Client.
  void Cancel(std::span<const OpId> ids, const Error& error, Time now);
  void Detach(std::span<const OpId> ids);
  std::vector<Outcome> TakeOutcomes() { return client_.TakeOutcomes(); }
  void BeginAnew() { client_.BeginAnew(); }
  void SayGoodbye();
  // Returns true if the head has welcomed this process and has sent an EPOCH.
  bool joined() const { return member_.joined() && member_.epoch().number > 0; }
  const Client& client() const { return client_; }
  // For tests: makes a counter fall below 0 in the next event, as a bug of TensorKV would.
  void RehearseBug() { rehearses_bug_ = true; }
  // Adds the client's counters and its peers: first the head, then the servers.
  void AddStats(Time now, StoreStats* stats) const;
  const Member& member() const { return member_; }

 private:
  friend class StateWriter;  // for checks: compares the states of machines
  void OnOpened(LinkId link, const Peer* dialed, Time now) override;
  void OnClosed(LinkId link, const Peer* dialed, Time now) override;
  void OnPeerEnded(LinkId link, Time now) override;
  void OnRefused(const Peer& dialed, const Error& error) override;
  void OnLackOfResources(const Peer& dialed, const Error& error, Time now) override;
  void OnMessage(LinkId link, const Peer* dialed, Message&& message, Time now) override;
  void OnWholeFrame(Time now) override;
  void OnTick(Time now) override;
  Block OnLanding(LinkId link, const Message& message) override {
    return client_.Landing(link, message);
  }
  uint64_t LowOf(LinkId link) override { return client_.Low(link); }
  uint64_t EpochNumber() const override { return member_.epoch().number; }
  std::string AddressOf(const Peer& peer) const override;
  const char* StateFor(LinkId link, const Peer* dialed, const Message& message) const override {
    return dialed != nullptr && dialed->kind == Peer::Kind::kHead ? member_.State()
                                                                  : client_.StateFor(link, message);
  }
  // Applies an event to the client, and ends this life if the event finds a bug.
  template <typename Work>
  void Apply(const Work& work);
  void OnHeadMessage(LinkId link, const Message& message, Time now);
  void ForwardToHead();
  void PassHeadLink(Time now);  // reports to the client if the head's link was opened or lost

  Role role_;
  Member member_;
  Client client_;
  bool head_was_open_ = false;
  bool rehearses_bug_ = false;
  size_t no_count_ = 0;  // always 0, so that RehearseBug's decrement fails
};

}  // namespace tkv
