// Connects a machine to the simulated network, and reports its messages to the model.

#include "base/format.h"
#include "rows/memory_disk.h"
#include "simulation/simulation.h"

namespace tkv::simulation {
Process::Process(Simulation* s, Kind k, int i, uint64_t number)
    : simulation(s),
      kind(k),
      index(i),
      pool(size_t{1} << 20),
      disk_times(s->options_.seed ^ number << 32) {
  const Scenario& scenario = simulation->scenario_;
  MemberOptions member;
  member.job = "simulation";
  member.process = number;
  member.rank = static_cast<Rank>(index);
  switch (kind) {
    case Kind::kHead: {
      address = "head";
      HeadOptions head;
      head.job = member.job;
      head.workers = scenario.workers;
      head.servers = scenario.servers;
      head.policy = scenario.policy;
      head.lives_return = scenario.lives_return;
      if (scenario.tells_slowly) {
        head.epoch_bytes_at_once = 0;
        head.epoch_bytes_per_second = size_t{4} << 10;
      }
      node = std::make_unique<HeadNode>(head, &pool, simulation->now_);
      break;
    }
    case Kind::kServer: {
      address = Format("server{}", index);
      member.role = Role::kServer;
      ShardOptions shard;
      shard.job = member.job;
      shard.index = static_cast<uint32_t>(index);
      shard.credit_budget_bytes = scenario.credit_bytes * static_cast<size_t>(scenario.workers);
      shard.credit_min_bytes = 1024;
      shard.adopt_from_bytes = scenario.adopt_from_bytes;
      auto disk = std::make_shared<MemoryDisk>(disk_times.Next());
      disk->faults = {.late = 0.3, .full = 0.1, .write = 0.1};
      shard.disk = std::move(disk);
      auto server = std::make_unique<ServerNode>(member, shard, &pool);
      server->AddListener(simulation);
      node = std::move(server);
      break;
    }
    default: {
      address = Format("{}{}.{}", kind == Kind::kWorker ? "worker" : "observer", index, number);
      member.role = kind == Kind::kWorker ? Role::kWorker : Role::kObserver;
      if (kind == Kind::kObserver) member.rank = kNoRank;
      ClientOptions client;
      client.job = member.job;
      client.patience = kPatience;
      client.server_patience = kServerPatience;
      client.answer_grace = kGrace;
      client.pull_bytes_max = scenario.pull_bytes_max;
      node = std::make_unique<ClientNode>(member, client, &pool);
    }
  }
  node->SetTap(this);
  endpoint = simulation->network_->Listen(address);
}

void Process::Opened(uint64_t link) {
  simulation->RecordEvent(this, "opened", link);
  node->Opened(link, simulation->now_);
}

void Process::Closed(uint64_t link, const Error&) {
  simulation->RecordEvent(this, "closed", link);
  node->Closed(link, simulation->now_);
}

std::vector<Block> Process::Land(uint64_t link, std::span<const std::byte> head,
                                 const std::byte* lent) {
  return node->Land(link, head, lent);
}

void Process::Received(uint64_t link) { node->Received(link, simulation->now_); }

void Process::Sent(LinkId, const Message& message) {
  if (kind != Kind::kWorker) return;
  Simulation& s = *simulation;
  const auto driver = s.drivers_.find(this);
  if (driver == s.drivers_.end()) return;
  if (message.type == Type::kPush && (message.flags & kBarrierKey) == 0) {
    if (const auto pushed = s.PushOf(driver->second, message)) {
      const auto& [key, push] = *pushed;
      // Pushes of a key are sent in order.  If a later push is sent first, the earlier one has
      // failed, although its outcome is not reported yet.
      for (const auto& [id, running] : driver->second.running) {
        const bool is_earlier =
            running.has_push && running.key == key && running.push.ordinal < push.ordinal;
        if (is_earlier && !s.model_.HasLeft(key, running.push)) s.model_.Failed(key, running.push);
      }
      s.model_.Pushed(key, push, message.number);
    }
  }
  // If a key does not exist yet, its INIT for chunk 0 is sent last.
  if (message.type == Type::kInit && message.chunk == 0) {
    for (size_t key = 0; key < s.scenario_.keys.size(); ++key) {
      if (IdOf(s.scenario_.keys[key].name) == message.key) s.model_.Made(key);
    }
  }
  if (message.type == Type::kWithdraw) {
    s.model_.Withdrawn(s.LifeOf(driver->second), message.number);
  }
  if (message.type == Type::kControl) {
    const Client& sender = client()->client();
    const auto running = driver->second.running.find(sender.control_under_way());
    Model::Control control;
    control.life = s.LifeOf(driver->second);
    control.generation = message.number;
    control.is_repeat = running == driver->second.running.end();
    if (!control.is_repeat) control.last = running->second.last_push;
    control.accumulate = !DecodeUpdateSpec(message.extra).program.empty();
    for (const SimKey& key : s.scenario_.keys) {
      const bool is_its = StoreOf(key.name) == message.chunk;
      const auto from = sender.ControlCountsFrom(key.name);
      control.from_rounds.push_back(is_its ? from.value_or(Model::kUnlisted) : Model::kNever);
    }
    s.model_.Controlled(std::move(control));
  }
}

void Process::Received(LinkId link, const Message& message, const char* state) {
  Simulation& s = *simulation;
  uint64_t mix = s.report_.hash ^ static_cast<uint64_t>(s.now_);
  mix = Random::Mix(mix ^ (link << 32) ^ (static_cast<uint64_t>(message.type) << 24) ^
                    (static_cast<uint64_t>(kind) << 20) ^ (static_cast<uint64_t>(index) << 16));
  mix = Random::Mix(mix ^ message.number ^ (message.seq << 20) ^ message.body.size);
  s.report_.hash = mix;
  if (s.now_ <= s.recent_until_) {
    for (const Fault::Kind fault : s.recent_) {
      static constexpr const char* kReceivers[] = {"head", "server", "client", "client"};
      ++s.coverage_[{Name(fault), kReceivers[static_cast<size_t>(kind)], tkv::Name(message.type),
                     state}];
    }
  }
  if (s.options_.trace) {
    s.trace_.push_back(
        Format("{:10.6f} {:<12} <- {} key {:x} chunk {} number {} seq {} need {} "
               "flags {} body {} [{}] {}",
               static_cast<double>(s.now_) / kSecond, address, tkv::Name(message.type),
               message.key.low >> 48, message.chunk, message.number, message.seq, message.need,
               message.flags, message.body.size, state,
               message.type == Type::kError ? message.extra : ""));
    if (s.trace_.size() > kTraceLines) s.trace_.pop_front();
  }
}

}  // namespace tkv::simulation
