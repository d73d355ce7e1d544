#include "node/node.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>

#include "base/check.h"
#include "base/format.h"

namespace tkv {

LinkId Node::Accept() {
  links_[++last_link_].open = true;
  return last_link_;
}

const Peer* Node::DialedPeer(LinkId link) const {
  const auto found = links_.find(link);
  return found != links_.end() && found->second.dialed ? &found->second.peer : nullptr;
}

bool Node::IsWelcome(LinkId id) const {
  const auto found = links_.find(id);
  return found != links_.end() && (found->second.proved || found->second.dialed);
}

void Node::Opened(LinkId id, Time now) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  found->second.open = true;
  OnOpened(id, DialedPeer(id), now);
  Flush();
}

void Node::Closed(LinkId id, Time now) {
  if (!links_.contains(id)) return;
  OnClosed(id, DialedPeer(id), now);
  links_.erase(id);
  builders_.erase(id);
  Flush();
}

void Node::PeerEnded(LinkId id, Time now) {
  if (links_.contains(id)) OnPeerEnded(id, now);
  Closed(id, now);
}

void Node::Refused(LinkId id, const Error& error, Time now) {
  if (const Peer* const dialed = DialedPeer(id)) OnRefused(*dialed, error);
  Closed(id, now);
}

void Node::LackedResources(LinkId id, const Error& error, Time now) {
  const Peer* const found = DialedPeer(id);
  const std::optional<Peer> dialed = found != nullptr ? std::optional(*found) : std::nullopt;
  Closed(id, now);
  if (!dialed) return;
  OnLackOfResources(*dialed, error, now);
  Flush();
}

std::vector<Block> Node::Land(LinkId id, std::span<const std::byte> head, const std::byte* lent) {
  const auto found = links_.find(id);
  if (found == links_.end()) throw Fail(Code::kCancelled, "the link is closed");
  Link& link = found->second;
  const FrameHeader header =
      DecodeHeader(head, IsWelcome(id) ? FrameLimits{} : FrameLimits::Unproved());
  link.landing.clear();
  DecodeMessages(header, head, &link.landing);
  link.low = header.low;
  OnHeader(id, header.low);
  const auto allocate = [this](size_t bytes) -> Block {
    try {
      return pool_->Allocate(bytes);
    } catch (const Error& error) {  // the machine gets the message without a body; the link lives
      if (error.code() != Code::kResourceExhausted) throw;
      return {nullptr, bytes, NoMemory()};
    }
  };
  std::vector<Block> blocks;
  size_t shared_bytes = 0;
  for (Message& message : link.landing) {
    if (message.body.size == 0) continue;
    Block block = OnLanding(id, message);
    const bool wants_memory = !block && block.size == message.body.size && block.size > 0;
    if (wants_memory && lent == nullptr) {
      if (block.size >= own_block_from_) {
        block = allocate(block.size);
      } else {
        shared_bytes += (block.size + 63) / 64 * 64;
      }
    }
    blocks.push_back(std::move(block));
  }
  if (shared_bytes > 0) {
    const Block shared = allocate(shared_bytes);
    size_t at = 0;
    for (Block& block : blocks) {
      if (block || block.owner != nullptr || block.size == 0) continue;
      block = {shared ? shared.data + at : nullptr, block.size, shared.owner};
      at += (block.size + 63) / 64 * 64;
    }
  }
  size_t next = 0;
  for (Message& message : link.landing) {
    if (message.body.size == 0) continue;
    Block& block = blocks[next++];
    const bool takes_lent = !block && block.size > 0 && lent != nullptr;
    const std::byte* const data = takes_lent ? lent : block.data;
    if (lent != nullptr) lent += message.body.size;
    message.body = {data, message.body.size, block.owner};
    block.size = message.body.size;
  }
  return blocks;
}

void Node::Received(LinkId id, Time now) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  received_.clear();
  received_.swap(found->second.landing);
  for (Message& message : received_) {
    const auto still = links_.find(id);
    if (still == links_.end()) break;  // a message before it has closed the link
    if (message.type == Type::kWelcome) still->second.proved = true;
    const Peer* const dialed = still->second.dialed ? &still->second.peer : nullptr;
    if (tap_ != nullptr) tap_->Received(id, message, StateFor(id, dialed, message));
    if (!Handle(id, dialed, std::move(message), now)) break;
  }
  received_.clear();
  OnWholeFrame(now);
  Flush();
}

bool Node::Handle(LinkId id, const Peer* dialed, Message&& message, Time now) {
  const Type type = message.type;
  try {
    OnMessage(id, dialed, std::move(message), now);
    return true;
  } catch (const Error& error) {  // the payload does not fit the type
    effects_.Close(id, error.code(), Format("{}: {}", Name(type), error.what()));
    OnClosed(id, DialedPeer(id), now);
    return false;
  }
}

void Node::ReadEnded(uint64_t ticket, Time now) {
  OnReadEnded(ticket, now);
  Flush();
}

void Node::Tick(Time now) {
  OnTick(now);
  Flush();
}

void Node::FinishFrame(LinkId link, FrameBuilder* builder) {
  if (builder->empty()) return;
  output_.sends.push_back({link, builder->Finish(EpochNumber(), LowOf(link))});
}

void Node::Flush() {
  try {
    MakeOutput();
  } catch (const std::bad_alloc&) {
    is_unsound_ = !Forget(kNoLink);
    throw;
  }
}

void Node::DropEffects(LinkId link) noexcept {
  links_.erase(link);
  builders_.erase(link);
  received_.clear();
  // A builder may have a part of a message.  Builders of other links are empty between events.
  for (auto& [id, builder] : builders_) builder = FrameBuilder();
  built_.clear();
  effects_.Clear();
}

void Node::MakeOutput() {
  for (const Peer& peer : effects_.dials) {
    Link& link = links_[++last_link_];
    link.dialed = true;
    link.peer = peer;
    output_.dials.push_back({last_link_, peer, AddressOf(peer)});
  }
  auto found = links_.end();  // link of the last message: the next one mostly has the same
  FrameBuilder* builder = nullptr;
  const auto add = [&](LinkId id, Message&& message) {
    if (found == links_.end() || found->first != id) {
      found = links_.find(id);
      builder = found == links_.end() ? nullptr : &builders_[id];
    }
    if (builder == nullptr || !found->second.open) return;
    if (message.type == Type::kWelcome) found->second.proved = true;
    if (tap_ != nullptr) tap_->Sent(id, message);
    if (!builder->Fits(message)) FinishFrame(id, builder);
    // A WELCOME has its own frame, which fits the limits for unproved peers.
    const bool alone = message.type == Type::kWelcome;
    if (builder->empty()) built_.push_back(id);
    builder->Add(std::move(message));
    if (alone) FinishFrame(id, builder);
  };
  for (Effects::Sending& sending : effects_.sends) add(sending.link, std::move(sending.message));
  for (const Effects::Closing& closing : effects_.closes) {
    if (!closing.reason.empty()) add(closing.link, ErrorReply(0, closing.code, closing.reason));
  }
  // A node has a builder for each of its links, and most events send on one or two.
  std::ranges::sort(built_);
  for (const LinkId id : built_) FinishFrame(id, &builders_[id]);
  built_.clear();
  for (const Effects::Closing& closing : effects_.closes) {
    builders_.erase(closing.link);
    if (links_.erase(closing.link) > 0) output_.closes.push_back(closing.link);
  }
  std::move(effects_.notices.begin(), effects_.notices.end(), std::back_inserter(output_.notices));
  effects_.Clear();
}

// ---- head ---------------------------------------------------------------------------------------

void HeadNode::OnMessage(LinkId link, const Peer*, Message&& message, Time now) {
  head_.Received(link, message, now, &effects_);
  // A link that the head closes is forgotten at once.
  for (const Effects::Closing& closing : effects_.closes) head_.Closed(closing.link, now);
}

bool HeadNode::Forget(LinkId link) noexcept {
  head_.Closed(link, 0);
  DropEffects(link);
  return true;
}

// Makes a change of the membership.  A head without memory makes it too, and sends its EPOCH later.
template <typename Change>
void HeadNode::ChangeMembership(Change change) {
  try {
    change();
    return Flush();
  } catch (const std::bad_alloc&) {
    Forget(kNoLink);
  }
}

void HeadNode::Exited(Role role, Rank index, uint64_t incarnation) {
  ChangeMembership([&] { head_.Exited(role, index, incarnation, &effects_); });
}

void HeadNode::Gone(Role role, Rank index, bool has_failed) {
  ChangeMembership([&] { head_.Gone(role, index, has_failed, &effects_); });
}

// ---- server -------------------------------------------------------------------------------------

void ServerNode::Start(Time now) {
  member_.Start(now, &effects_);
  Flush();
}

void ServerNode::OnOpened(LinkId link, const Peer* dialed, Time now) {
  if (dialed != nullptr) member_.Opened(link, now, &effects_);
}

void ServerNode::OnClosed(LinkId link, const Peer* dialed, Time now) {
  if (dialed != nullptr) {
    member_.Closed(link, now, &effects_);
  } else {
    held_.erase(link);
    shard_.Closed(link);
    const bool was_on = trace_.is_on();
    trace_.Closed(link);
    if (was_on && !trace_.is_on()) shard_.RemoveListener(&trace_);
  }
}

void ServerNode::OnPeerEnded(LinkId link, Time) {
  if (DialedPeer(link) == nullptr) return shard_.Ended(link);
  if (!member_.HeadEnded()) return;
  const size_t sent_before = effects_.sends.size();
  shard_.On(member_.epoch(), &effects_);
  EndSpans(sent_before);
}

void ServerNode::OnClientMessage(LinkId link, Message&& message, Time now) {
  if (!handles_held_ && HoldForDisk(link, &message)) {
    size_t bytes = 0;
    for (const Held& held : held_[link]) bytes += held.message.body.size;
    // Beyond these limits the link holds no messages: the shard reads the disk itself.
    if (held_[link].size() > kHeldMax || bytes > kHeldBytes) HandleHeld(link, false, now);
    return;
  }
  const std::optional<SessionId> session = shard_.SessionIdOf(link);
  if (message.type == Type::kTrace && session) return OnTrace(link, *session, message, now);
  const size_t sent_before = effects_.sends.size();
  if (trace_.is_on() && session) trace_.Received(link, *session, message, now);
  shard_.SetNow(now);
  shard_.Received(link, std::move(message), &effects_);
  EndSpans(sent_before);
}

// Returns true and keeps the message if it has to wait for the disk or for a held message.
// Messages of a link are handled in the order of their arrival.
bool ServerNode::HoldForDisk(LinkId link, Message* message) {
  const auto found = held_.find(link);
  std::vector<DiskRange> ranges = shard_.RangesOnDisk(link, *message);
  if (ranges.empty() && found == held_.end()) return false;
  if (message->body && message->body.owner == nullptr) {  // a lent body: copy it
    try {
      const Block body = pool()->Allocate(message->body.size);
      std::memcpy(body.data, message->body.data, body.size);
      message->body = body.bytes();
    } catch (const Error& error) {
      if (error.code() != Code::kResourceExhausted) throw;
      message->body = {nullptr, message->body.size, NoMemory()};
    }
  }
  Held held{std::move(*message), ranges.empty() ? 0 : ++last_ticket_};
  if (!ranges.empty()) {
    tickets_[held.ticket] = link;
    ReadDisk(held.ticket, std::move(ranges));
  }
  held_[link].push_back(std::move(held));
  return true;
}

void ServerNode::OnReadEnded(uint64_t ticket, Time now) {
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return;
  const LinkId link = found->second;
  tickets_.erase(found);
  const auto held = held_.find(link);
  if (held == held_.end()) return;  // the link has closed
  for (Held& one : held->second) {
    if (one.ticket == ticket) one.ticket = 0;
  }
  HandleHeld(link, true, now);
}

// Handles the held messages of a link, in order.
//   waits  stops at the first message whose reading is not done
void ServerNode::HandleHeld(LinkId link, bool waits, Time now) {
  for (;;) {
    const auto held = held_.find(link);
    if (held == held_.end()) return;
    if (held->second.empty()) {
      held_.erase(held);
      return;
    }
    if (waits && held->second.front().ticket != 0) return;
    Message message = std::move(held->second.front().message);
    tickets_.erase(held->second.front().ticket);
    held->second.pop_front();
    handles_held_ = true;
    const bool is_well = Handle(link, nullptr, std::move(message), now);
    handles_held_ = false;
    if (!is_well) return;
  }
}

void ServerNode::OnTrace(LinkId link, const SessionId& session, const Message& message, Time now) {
  if (session.rank == kNoRank) {
    return effects_.Send(
        link, ErrorReply(message.seq, Code::kFailedPrecondition, "an observer does not trace"));
  }
  const bool was_on = trace_.is_on();
  effects_.Send(link, trace_.Answer(link, message, now));
  if (was_on == trace_.is_on()) return;
  if (was_on) {
    shard_.RemoveListener(&trace_);
  } else {
    shard_.AddListener(&trace_);
  }
}

// Ends the spans that the messages sent since `sent_before` answer.
void ServerNode::EndSpans(size_t sent_before) {
  if (trace_.is_on()) trace_.Sent(std::span(effects_.sends).subspan(sent_before));
}

void ServerNode::OnMessage(LinkId link, const Peer* dialed, Message&& message, Time now) {
  if (dialed == nullptr) return OnClientMessage(link, std::move(message), now);
  const bool was_joined = member_.joined();
  const bool new_epoch = member_.Received(link, message, now, &effects_);
  if (message.type == Type::kOk) {
    has_left_ = true;
    member_.Left();
  }
  if (!was_joined && member_.joined()) {
    shard_.Joined(static_cast<uint32_t>(member_.welcome().rank), member_.welcome().incarnation);
  }
  if (!new_epoch) return;
  const size_t sent_before = effects_.sends.size();
  shard_.On(member_.epoch(), &effects_);
  EndSpans(sent_before);
}

void ServerNode::Leave() {
  if (member_.link() == kNoLink) return;
  Message goodbye;
  goodbye.type = Type::kGoodbye;
  goodbye.seq = 1;
  effects_.Send(member_.link(), std::move(goodbye));
  Flush();
}

Block ServerNode::OnLanding(LinkId link, const Message& message) {
  return {nullptr, shard_.Admit(link, message) ? message.body.size : 0, nullptr};
}

// ---- client -------------------------------------------------------------------------------------

void ClientNode::Start(Time now) {
  member_.Start(now, &effects_);
  Flush();
}

// Applies an event to the client.  An internal error (a bug of TensorKV) ends this life of the
// worker with all its operations, because no operation may continue after a bug.
template <typename Work>
void ClientNode::Apply(const Work& work) {
  try {
    work();
    if (std::exchange(rehearses_bug_, false)) Drop(&no_count_);
  } catch (const Error& error) {
    if (error.code() != Code::kInternal) throw;
    client_.Refused(error, &effects_);
  }
  ForwardToHead();
}

OpId ClientNode::Begin(Operation operation, Time now) {
  const OpId id = client_.next_op();
  Apply([&] { client_.Start(std::move(operation), now); });
  Apply([&] { client_.Settle(now, &effects_); });
  Flush();
  return id;
}

std::vector<OpId> ClientNode::Begin(std::vector<Operation> operations, Time now) {
  std::vector<OpId> ids;
  ids.reserve(operations.size());
  for (Operation& operation : operations) {
    ids.push_back(client_.next_op());
    Apply([&] { client_.Start(std::move(operation), now); });
  }
  Apply([&] { client_.Settle(now, &effects_); });
  Flush();
  return ids;
}

void ClientNode::Detach(std::span<const OpId> ids) {
  Apply([&] { client_.Detach(ids); });
  Flush();
}

void ClientNode::AddStats(Time now, StoreStats* stats) const {
  member_.AddStats(now, stats);
  client_.AddStats(now, stats);
}

void ClientNode::Cancel(std::span<const OpId> ids, const Error& error, Time now) {
  Apply([&] { client_.Cancel(ids, error, now, &effects_); });
  Flush();
}

void ClientNode::SayGoodbye() {
  Apply([&] { client_.SayGoodbye(&effects_); });
  Flush();
}

// Sends the client's messages to the head.  Without a head they are dropped: the client sends them
// again when the head is back.
void ClientNode::ForwardToHead() {
  for (Message& message : effects_.to_head) {
    if (member_.link() != kNoLink) effects_.Send(member_.link(), std::move(message));
  }
  effects_.to_head.clear();
}

void ClientNode::PassHeadLink(Time now) {
  const bool is_open = member_.link() != kNoLink;
  if (is_open == head_was_open_) return;
  head_was_open_ = is_open;
  if (is_open) {
    client_.HeadOpened(&effects_);
  } else {
    client_.HeadClosed(now);
  }
}

void ClientNode::OnOpened(LinkId link, const Peer* dialed, Time now) {
  if (dialed == nullptr) return;
  Apply([&] {
    if (dialed->kind == Peer::Kind::kHead) {
      member_.Opened(link, now, &effects_);
    } else {
      client_.Opened(dialed->index, link, now, &effects_);
    }
  });
}

void ClientNode::OnClosed(LinkId link, const Peer* dialed, Time now) {
  if (dialed == nullptr) return;
  Apply([&] {
    if (dialed->kind == Peer::Kind::kHead) {
      member_.Closed(link, now, &effects_);
      PassHeadLink(now);
    } else {
      client_.Closed(link, now);
      client_.Failed(dialed->index, now);
    }
  });
}

void ClientNode::OnPeerEnded(LinkId link, Time now) {
  const Peer* const dialed = DialedPeer(link);
  if (dialed == nullptr || dialed->kind != Peer::Kind::kHead || !member_.joined()) return;
  Apply([&] {
    if (member_.HeadEnded()) client_.On(member_.epoch(), now, &effects_);
    client_.HeadEnded(now);
  });
}

void ClientNode::OnRefused(const Peer& dialed, const Error& error) {
  Apply([&] {
    if (dialed.kind == Peer::Kind::kServer) {
      client_.ServerRefused(dialed.index, error, &effects_);
    } else {
      member_.Refuse(error);
      client_.Refused(error, &effects_);
    }
  });
}

void ClientNode::OnLackOfResources(const Peer& dialed, const Error& error, Time now) {
  if (dialed.kind != Peer::Kind::kServer) return;
  Apply([&] { client_.LackedResources(dialed.index, error, now, &effects_); });
}

std::string ClientNode::AddressOf(const Peer& peer) const {
  const auto& servers = member_.epoch().servers;
  return peer.kind == Peer::Kind::kServer && peer.index < servers.size()
             ? servers[peer.index].address
             : std::string();
}

void ClientNode::OnMessage(LinkId link, const Peer* dialed, Message&& message, Time now) {
  if (dialed == nullptr) return;
  Apply([&] {
    if (dialed->kind == Peer::Kind::kServer) {
      client_.Received(link, message, now, &effects_);
    } else {
      OnHeadMessage(link, message, now);
    }
  });
}

void ClientNode::OnHeadMessage(LinkId link, const Message& message, Time now) {
  const bool was_joined = member_.joined();
  const bool new_epoch = member_.Received(link, message, now, &effects_);
  if (!was_joined && member_.joined()) client_.Joined(role_, member_.welcome());
  if (member_.refused()) client_.Refused(*member_.refused(), &effects_);
  if (new_epoch) client_.On(member_.epoch(), now, &effects_);
  PassHeadLink(now);
  client_.HeadAnswered(message, now, &effects_);
  if (client_.has_left()) member_.Left();
}

void ClientNode::OnWholeFrame(Time now) {
  Apply([&] { client_.Settle(now, &effects_); });
}

void ClientNode::OnTick(Time now) {
  Apply([&] {
    member_.Tick(now, &effects_);
    PassHeadLink(now);
    client_.Tick(now, &effects_);
  });
}

}  // namespace tkv
