#include "simulation/simulation.h"

#include <algorithm>
#include <cstring>

#include "base/format.h"
#include "tkv/optimizer.h"

namespace tkv::simulation {
namespace {

constexpr Time kPatience = 15 * kSecond;
constexpr Time kServerPatience = 8 * kSecond;
constexpr Time kGrace = 1 * kSecond;
constexpr uint64_t kEventsMax = 400'000;
constexpr int kFailuresMax = 4;  // after which a driver gives up and leaves
constexpr size_t kTraceLines = 4000;
constexpr int kObserverPulls = 10;

using Kind = Operation::Kind;

const std::string& AccumulateProgram() {
  static const std::string text = Optimizer::Create("test")->program().ToText();
  return text;
}

}  // namespace

// ---- Process ------------------------------------------------------------------------------------

Process::Process(Simulation* s, Kind k, int i, uint64_t number)
    : simulation(s), kind(k), index(i), pool(size_t{1} << 20) {
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
      node = std::make_unique<HeadNode>(head, &pool, simulation->now_);
      break;
    }
    case Kind::kServer: {
      address = format("server{}", index);
      member.role = Role::kServer;
      ShardOptions shard;
      shard.job = member.job;
      shard.index = static_cast<uint32_t>(index);
      shard.credit_budget_bytes = scenario.credit_bytes * static_cast<size_t>(scenario.workers);
      shard.credit_min_bytes = 1024;
      shard.adopt_from_bytes = scenario.adopt_from_bytes;
      auto server = std::make_unique<ServerNode>(member, shard, &pool);
      server->SetListener(simulation);
      node = std::move(server);
      break;
    }
    default: {
      address = format("{}{}.{}", kind == Kind::kWorker ? "worker" : "observer", index, number);
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
  simulation->Event(this, "opened", link);
  node->Opened(link, simulation->now_);
}

void Process::Closed(uint64_t link, const std::string&) {
  simulation->Event(this, "closed", link);
  node->Closed(link, simulation->now_);
}

std::vector<Block> Process::Land(uint64_t link, std::span<const std::byte> head) {
  return node->Land(link, head);
}

void Process::Received(uint64_t link) { node->Received(link, simulation->now_); }

void Process::Sent(LinkId, const Message& message) {
  if (kind != Kind::kWorker) return;
  Simulation& s = *simulation;
  const auto driver = s.drivers_.find(this);
  if (driver == s.drivers_.end()) return;
  if (message.type == Type::kPush && message.body.size > 0) {
    const auto body = s.bodies_.find(message.body.owner.get());
    if (body != s.bodies_.end()) {
      s.model_.Pushed(body->second.first, body->second.second, message.number);
    }
  }
  if (message.type == Type::kWithdraw) {
    s.model_.Withdrawn(s.LifeOf(driver->second), message.number);
  }
  if (message.type == Type::kControl) {
    for (const auto& [id, running] : driver->second.running) {
      if (running.step.kind != Step::Kind::kControl) continue;
      std::vector<uint64_t> from_rounds;
      for (const SimKey& key : s.scenario_.keys) {
        const uint64_t round = client()->client().RoundOf(key.name);
        from_rounds.push_back(round == 0 ? 0 : round + 1);
      }
      s.model_.Controlled(s.LifeOf(driver->second), message.number, running.step.accumulate,
                          std::move(from_rounds));
    }
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
        format("{:10.6f} {:<12} <- {} key {:x} chunk {} number {} seq {} need {} "
               "flags {} body {} [{}] {}",
               static_cast<double>(s.now_) / kSecond, address, tkv::Name(message.type),
               message.key.low >> 48, message.chunk, message.number, message.seq, message.need,
               message.flags, message.body.size, state,
               message.type == Type::kError ? message.extra : ""));
    if (s.trace_.size() > kTraceLines) s.trace_.pop_front();
  }
}

// ---- Simulation: the network --------------------------------------------------------------------

Simulation::Simulation(const testing::SimulationOptions& options)
    : options_(options),
      scenario_(MakeScenario(options)),
      model_(scenario_),
      random_(options.seed ^ 0x5EED) {
  network_ = std::make_unique<InprocNetwork>(NetworkOptions{[this] { return now_; }, this});
  for (size_t i = 0; i < scenario_.keys.size(); ++i) {
    key_index_[IdOf(scenario_.keys[i].name)] = i;
  }
  head_ = Add(Process::Kind::kHead, 0);
  for (int i = 0; i < scenario_.servers; ++i) servers_.push_back(Add(Process::Kind::kServer, i));
  for (int rank = 0; rank < scenario_.workers; ++rank) StartWorker(rank);
  if (scenario_.observer) {
    Process* const process = Add(Process::Kind::kObserver, 0);
    Driver& driver = drivers_[process];
    driver.process = process;
    driver.step_count = kObserverPulls;
  }
}

Simulation::~Simulation() {
  for (auto& process : processes_) process->endpoint.reset();
}

Process* Simulation::Add(Process::Kind kind, int index) {
  processes_.push_back(std::make_unique<Process>(this, kind, index, ++process_count_));
  Process* const process = processes_.back().get();
  process->node->Start(now_);
  Dispatch(process);
  return process;
}

void Simulation::Remove(Process* process, bool silently) {
  if (silently) network_->Sever(process->address, true);
  if (const auto driver = drivers_.find(process); driver != drivers_.end()) {
    for (const auto& [id, running] : driver->second.running) {
      if (running.has_push && !running.accepted) {
        Record(driver->second, running, HistoryEvent::Kind::kPush, 0, 0);
      }
    }
  }
  drivers_.erase(process);
  std::erase_if(processes_, [&](const auto& p) { return p.get() == process; });
}

std::string Simulation::Peer(const tkv::Peer& peer) const {
  return peer.kind == tkv::Peer::Kind::kHead ? "head" : format("server{}", peer.index);
}

void Simulation::Dispatch(Process* process) {
  NodeOutput output = process->node->TakeOutput();
  for (const NodeOutput::Dial& dial : output.dials) {
    process->endpoint->Dial(dial.link, Peer(dial.peer));
  }
  for (NodeOutput::Send& send : output.sends) {
    process->endpoint->Send(send.link, std::move(send.frame));
  }
  for (const LinkId link : output.closes) process->endpoint->Close(link);
  if (options_.trace) {
    for (const Effects::Notice& notice : output.notices) {
      trace_.push_back(format("{:10.6f} {:<12} {}", static_cast<double>(now_) / kSecond,
                              process->address, notice.text));
    }
  }
}

int64_t Simulation::Delay(const std::string& from, const std::string& to, size_t bytes) {
  Time delay = random_.Between(20, 400) * 1000 + static_cast<Time>(bytes / 8);
  for (const Period& period : periods_) {
    if (period.until < now_) continue;
    const bool here = period.from.empty() || period.from == from || period.from == to;
    if (period.kind == Fault::Kind::kDelay) delay += random_.Between(0, 40) * kMillisecond;
    if (period.kind == Fault::Kind::kSlow && here) delay += random_.Between(5, 120) * kMillisecond;
  }
  return delay;
}

int Simulation::Copies(const std::string& from, const std::string& to) {
  for (const Period& period : periods_) {
    if (period.kind == Fault::Kind::kDuplicate && period.until >= now_ &&
        (period.from == from || period.from == to)) {
      return random_.Chance(0.5) ? 2 : 1;
    }
  }
  return 1;
}

bool Simulation::IsCut(const std::string& from, const std::string& to) {
  return std::any_of(periods_.begin(), periods_.end(), [&](const Period& period) {
    if (period.until <= now_) return false;
    if (period.kind == Fault::Kind::kCut) return period.from == from && period.to == to;
    return period.kind == Fault::Kind::kPause && (period.from == from || period.from == to);
  });
}

// ---- Simulation: faults -------------------------------------------------------------------------

void Simulation::Inject() {
  while (next_fault_ < scenario_.faults.size() &&
         scenario_.faults[next_fault_].at_event <= events_) {
    InjectOne(scenario_.faults[next_fault_++]);
  }
}

void Simulation::InjectOne(const Fault& fault) {
  Random choice(fault.choice);
  const auto pick = [&](Process::Kind kind) -> Process* {
    std::vector<Process*> candidates;
    for (const auto& process : processes_) {
      if (process->kind == kind) candidates.push_back(process.get());
    }
    if (candidates.empty()) return nullptr;
    return candidates[static_cast<size_t>(
        choice.Between(0, static_cast<int64_t>(candidates.size()) - 1))];
  };
  Process* const worker = pick(Process::Kind::kWorker);
  Process* const server = pick(Process::Kind::kServer);
  Process* const target = choice.Chance(0.8) ? server : head_;
  if (worker == nullptr || server == nullptr || target == nullptr) return;
  Time lasts = choice.Between(1, 1500) * kMillisecond;
  switch (fault.kind) {
    case Fault::Kind::kDrop:
      network_->Sever(worker->address, target->address);
      break;
    case Fault::Kind::kDuplicate:
    case Fault::Kind::kSlow:
      periods_.push_back(
          {fault.kind, now_ + lasts, choice.Chance(0.5) ? worker->address : server->address, ""});
      break;
    case Fault::Kind::kDelay:
      periods_.push_back({fault.kind, now_ + lasts, "", ""});
      break;
    case Fault::Kind::kCut: {
      lasts *= 2;  // up to 3 s: shorter than what makes the head hold somebody for dead
      const bool forth = choice.Chance(0.5);
      periods_.push_back({fault.kind, now_ + lasts, forth ? worker->address : target->address,
                          forth ? target->address : worker->address});
      break;
    }
    case Fault::Kind::kPause:
      lasts = choice.Between(6, 9) * kSecond;
      periods_.push_back({fault.kind, now_ + lasts, worker->address, ""});
      if (fault.restarts) {
        planned_.push_back({now_ + choice.Between(200, 8000) * kMillisecond, worker->index,
                            Planned::Kind::kBegin});
      }
      break;
    case Fault::Kind::kKill:
    case Fault::Kind::kVanish: {
      if (fault.restarts) {
        planned_.push_back({now_ + choice.Between(200, 8000) * kMillisecond, worker->index,
                            Planned::Kind::kBegin});
      }
      const int rank = worker->index;
      const uint64_t incarnation =
          worker->client()->joined() ? worker->client()->client().incarnation() : 0;
      Remove(worker, fault.kind == Fault::Kind::kVanish);
      if (fault.kind == Fault::Kind::kKill && head_ != nullptr && choice.Chance(0.5)) {
        head_->head()->Exited(Role::kWorker, static_cast<Rank>(rank), incarnation);  // a launcher
        Dispatch(head_);
      }
      break;
    }
    case Fault::Kind::kIsolate:
      ++isolations_;
      break;
    case Fault::Kind::kHaste:
      // What the old life sends is held for a while; the new life joins meanwhile, and the servers
      // learn of it late.
      lasts = choice.Between(200, 500) * kMillisecond;
      for (Process* const other : servers_) {
        if (other == nullptr) continue;
        periods_.push_back({Fault::Kind::kCut, now_ + lasts, worker->address, other->address});
        periods_.push_back({Fault::Kind::kCut, now_ + lasts + choice.Between(0, 100) * kMillisecond,
                            "head", other->address});
      }
      planned_.push_back(
          {now_ + choice.Between(1, 50) * kMillisecond, worker->index, Planned::Kind::kEnd});
      planned_.push_back(
          {now_ + choice.Between(51, 100) * kMillisecond, worker->index, Planned::Kind::kBegin});
      break;
    case Fault::Kind::kKillServer: {
      const int index = server->index;
      servers_[static_cast<size_t>(index)] = nullptr;
      Remove(server, choice.Chance(0.5));
      if (fault.restarts) Add(Process::Kind::kServer, index);
      break;
    }
    case Fault::Kind::kKillHead:
      last_epoch_ = HeadEpoch();
      Remove(head_, choice.Chance(0.5));
      head_ = nullptr;
      break;
  }
  ++report_.faults;
  recent_.insert(fault.kind);
  recent_until_ = now_ + std::max<Time>(lasts, 2 * kSecond);
  if (options_.trace) {
    trace_.push_back(format("{:10.6f} FAULT {} ({}, {})", static_cast<double>(now_) / kSecond,
                            Name(fault.kind), fault.choice, fault.restarts));
  }
}

// ---- Simulation: the workers' programs ----------------------------------------------------------

void Simulation::StartWorker(int rank) {
  Process* const process = Add(Process::Kind::kWorker, rank);
  Driver& driver = drivers_[process];
  driver.process = process;
  driver.born = now_;
  driver.rank = static_cast<Rank>(rank);
  driver.step_count = scenario_.step_counts[static_cast<size_t>(rank)];
}

// The newest life of a rank; null where there is none.
Process* Simulation::WorkerOf(int rank) const {
  for (auto at = processes_.rbegin(); at != processes_.rend(); ++at) {
    if ((*at)->kind == Process::Kind::kWorker && (*at)->index == rank) return at->get();
  }
  return nullptr;
}

void Simulation::Happen(const Planned& planned) {
  Process* const worker = WorkerOf(planned.rank);
  switch (planned.kind) {
    case Planned::Kind::kBegin:
      return StartWorker(planned.rank);
    case Planned::Kind::kEnd:
      if (worker != nullptr) Remove(worker, true);
      return;
    case Planned::Kind::kIsolate:
      if (worker == nullptr) return;
      for (Process* const server : servers_) {
        if (server == nullptr || random_.Chance(0.5)) continue;
        periods_.push_back(
            {Fault::Kind::kCut, now_ + 12 * kSecond, worker->address, server->address});
        network_->Sever(worker->address, server->address);
        return;
      }
  }
}

Life Simulation::LifeOf(const Driver& driver) const {
  return {driver.rank, driver.process->client()->client().incarnation()};
}

std::vector<const Shard*> Simulation::Shards() const {
  std::vector<const Shard*> shards;
  shards.reserve(servers_.size());
  for (Process* const server : servers_) {
    shards.push_back(server == nullptr ? nullptr : &server->server()->shard());
  }
  return shards;
}

const Epoch& Simulation::HeadEpoch() const {
  return head_ == nullptr ? last_epoch_ : head_->head()->head().epoch();
}

OpId Simulation::Begin(Driver* driver, Operation operation, Driver::Running running) {
  static constexpr const char* kVerbs[] = {"init", "open",    "push",          "pull",   "pushpull",
                                           "wait", "barrier", "set_optimizer", "delete", "close"};
  operation.verb = kVerbs[static_cast<size_t>(operation.kind)];
  running.begin = now_;
  if (operation.kind == Kind::kControl && isolations_ > 0) {
    --isolations_;
    planned_.push_back({now_ + random_.Between(200, 1500) * 1000, driver->process->index,
                        Planned::Kind::kIsolate});
  }
  running.logged_at = ++logged_;
  running.generation = driver->generation[running.key];
  // The client may send within Begin: what is sent has to be known before.
  ClientNode* const node = driver->process->client();
  const OpId id = node->client().next_op();
  driver->running.emplace(id, std::move(running));
  node->Begin(std::move(operation), now_);
  Dispatch(driver->process);
  return id;
}

void Simulation::Drive(Driver* driver) {
  ClientNode* const node = driver->process->client();
  for (;;) {
    for (const Outcome& outcome : node->TakeOutcomes()) OnOutcome(driver, outcome);
    const bool refused = node->member().refused().has_value();
    if (!node->joined() && (refused || now_ - driver->born > kPatience)) driver->done = true;
    if (driver->done || !node->joined() || !StartNext(driver)) return;
  }
}

// Starts the next operation; false where it has to wait or the program is over.
bool Simulation::StartNext(Driver* driver) {
  const Client& client = driver->process->client()->client();
  if (client.closed() || driver->process->client()->member().refused()) {
    driver->done = driver->running.empty();
    return false;
  }
  if (driver->next_init < scenario_.keys.size()) {
    if (!driver->running.empty()) return false;
    StartInit(driver);
    return true;
  }
  if (driver->rank != kNoRank && client.rejoined() && !driver->asked_barrier) {
    if (!driver->running.empty()) return false;
    driver->asked_barrier = true;
    Operation open;
    open.kind = Kind::kOpen;
    open.key = InternalKey(0, "barrier");
    Driver::Running running;
    running.is_init = true;
    running.key = scenario_.keys.size();
    Begin(driver, std::move(open), std::move(running));
    return true;
  }
  if (!driver->started) {
    if (!driver->running.empty()) return false;
    driver->started = true;
    for (const SimKey& key : scenario_.keys) {
      driver->rounds_at_start.push_back(client.RoundOf(key.name));
    }
    driver->rounds_at_start.push_back(client.RoundOf(InternalKey(0, "barrier")));
  }
  if (driver->next_step < driver->step_count) {
    if (driver->rank == kNoRank) {
      if (!driver->running.empty()) return false;
      Step step;
      step.kind = Step::Kind::kPull;
      if (!driver->opened) {  // finds the key (again), then pulls it
        driver->opened = true;
        driver->next_init = static_cast<size_t>(
            random_.Between(0, static_cast<int64_t>(scenario_.keys.size()) - 1));
        step.key = driver->next_init;
        StartInit(driver);
        driver->next_init = scenario_.keys.size();
        driver->observed = step.key;
        return true;
      }
      driver->opened = false;
      step.key = driver->observed;
      ++driver->next_step;
      return StartStep(driver, step);
    }
    const Step& step = scenario_.steps[driver->next_step];
    const bool alone = step.kind == Step::Kind::kBarrier || step.kind == Step::Kind::kControl ||
                       step.kind == Step::Kind::kRecreate;
    if (alone && !driver->running.empty()) return false;
    if (driver->running.size() >= static_cast<size_t>(scenario_.outstanding)) return false;
    if (step.kind == Step::Kind::kRecreate) {
      StartRecreate(driver, step);
      return true;
    }
    ++driver->next_step;
    return StartStep(driver, step);
  }
  if (!driver->running.empty()) return false;
  if (driver->rank == kNoRank || driver->leaving) {
    driver->done = true;
    return false;
  }
  driver->leaving = true;
  Operation leave;
  leave.kind = Kind::kLeave;
  Begin(driver, std::move(leave), {});
  return true;
}

void Simulation::StartInit(Driver* driver) {
  const size_t index = driver->next_init++;
  const SimKey& key = scenario_.keys[index];
  if (driver->rank != kNoRank) model_.Created(index);
  Operation init;
  init.kind = driver->rank == kNoRank ? Kind::kOpen : Kind::kInit;
  init.key = key.name;
  init.meta = key.meta;
  init.value = FillWith(key, InitialValue(scenario_.seed, key));
  Driver::Running running;
  running.is_init = true;
  running.key = index;
  Begin(driver, std::move(init), std::move(running));
}

bool Simulation::StartStep(Driver* driver, const Step& step) {
  const bool pushes = step.kind == Step::Kind::kPush || step.kind == Step::Kind::kPushPull;
  const bool is_barrier = step.kind == Step::Kind::kBarrier;
  if (!is_barrier && step.kind != Step::Kind::kControl && driver->missing.contains(step.key)) {
    return true;
  }
  const SimKey& key = scenario_.keys[step.key];
  // A later life goes on where the rounds of its key are.
  const bool has_rounds = is_barrier || key.meta.mode == KeyMeta::Mode::kSync;
  const size_t slot = is_barrier ? scenario_.keys.size() : step.key;
  if ((pushes || is_barrier) && has_rounds && step.ordinal <= driver->rounds_at_start[slot]) {
    return true;
  }
  Operation operation;
  Driver::Running running;
  running.step = step;
  running.key = step.key;
  operation.key = key.name;
  if (pushes) {
    running.has_push = true;
    running.push = {LifeOf(*driver), ++driver->ordinal};
    running.value = FillWith(key, Contribution(scenario_.seed, key, driver->rank,
                                               running.push.life.incarnation, driver->ordinal));
    bodies_[running.value.owner.get()] = {step.key, running.push};
    operation.value = running.value;
  }
  const auto last = driver->last_accepted.find(step.key);
  if (last != driver->last_accepted.end()) {
    running.last_accepted = last->second;
    running.round = driver->last_round[step.key];
  }
  if (is_barrier) barriers_[step.ordinal].insert(driver->rank);
  if (step.kind == Step::Kind::kPull || step.kind == Step::Kind::kPushPull) {
    running.out = driver->process->pool.Allocate(key.meta.elements() * ItemSize(key.meta.dtype));
    std::memset(running.out.data, 0xEE, running.out.size);
    operation.out = running.out;
  }
  switch (step.kind) {
    case Step::Kind::kPush:
      operation.kind = Kind::kPush;
      break;
    case Step::Kind::kPull:
      operation.kind = Kind::kPull;
      break;
    case Step::Kind::kPushPull:
      operation.kind = Kind::kPushPull;
      break;
    case Step::Kind::kWait:
      operation.kind = Kind::kWait;
      break;
    case Step::Kind::kBarrier:
      operation.kind = Kind::kBarrier;
      break;
    default:
      if (driver->rank != 0 || !driver->process->client()->client().IsSender()) return true;
      operation.kind = Kind::kControl;
      operation.key.clear();
      if (step.accumulate) {
        operation.spec.program = AccumulateProgram();
        operation.spec.params = {1.0};
      }
  }
  Begin(driver, std::move(operation), std::move(running));
  return true;
}

// Barrier, delete, barrier, init: what a program does to make a key anew.
void Simulation::StartRecreate(Driver* driver, const Step& step) {
  const SimKey& key = scenario_.keys[step.key];
  Operation operation;
  operation.key = key.name;
  Driver::Running running;
  running.step = step;
  running.key = step.key;
  running.phase = ++driver->recreate_phase;
  if (running.phase == 1) barriers_[step.ordinal - 1].insert(driver->rank);
  if (running.phase == 3) barriers_[step.ordinal].insert(driver->rank);
  if (running.phase == 1 || running.phase == 3) {
    operation.kind = Kind::kBarrier;
  } else if (running.phase == 2) {
    operation.kind = Kind::kDelete;
    driver->last_accepted.erase(step.key);
    driver->last_round.erase(step.key);
    ++driver->generation[step.key];
  } else {
    driver->recreate_phase = 0;
    ++driver->next_step;
    model_.Created(step.key);
    operation.kind = Kind::kInit;
    operation.meta = key.meta;
    operation.value = FillWith(key, InitialValue(scenario_.seed, key));
    running.is_init = true;
  }
  Begin(driver, std::move(operation), std::move(running));
}

void Simulation::OnOutcome(Driver* driver, const Outcome& outcome) {
  const auto found = driver->running.find(outcome.op);
  if (found == driver->running.end()) return Violate("an operation ended twice");
  Driver::Running& running = found->second;
  if (options_.trace) {
    trace_.push_back(format("{:10.6f} {:<12} op {} {} {} {}", static_cast<double>(now_) / kSecond,
                            driver->process->address, outcome.op, static_cast<int>(outcome.event),
                            outcome.round, outcome.error ? outcome.error->what() : ""));
  }
  if (now_ - running.begin > kPatience + 2 * kServerPatience + 2 * kGrace) {
    Violate(format("an operation took {:.1f} s, its patience is {:.1f} s",
                   static_cast<double>(now_ - running.begin) / kSecond,
                   static_cast<double>(kPatience) / kSecond));
  }
  const SimKey* const key =
      running.key < scenario_.keys.size() ? &scenario_.keys[running.key] : nullptr;
  if (outcome.event == Outcome::Event::kAccepted) {
    if (running.accepted) Violate("a push was accepted twice");
    running.accepted = true;
    if (!running.has_push) return;
    Record(*driver, running, HistoryEvent::Kind::kPush, ++logged_, outcome.round);
    model_.Accepted(running.key, running.push, outcome.round, Shards());
    driver->last_accepted[running.key] = running.push.ordinal;
    driver->last_round[running.key] = outcome.round;
    running.last_accepted = running.push.ordinal;
    // The source is free: the user may write what he likes there.
    std::memset(const_cast<std::byte*>(running.value.data), 0xAB, running.value.size);
    return;
  }
  ++report_.operations;
  if (outcome.event == Outcome::Event::kFailed) {
    ++report_.failed_operations;
    CheckFailure(*driver, running, *outcome.error);
    if (running.has_push && !running.accepted) {
      model_.Failed(running.key, running.push);
      Record(*driver, running, HistoryEvent::Kind::kPush, 0, 0);
    }
    if (running.is_init && driver->rank != kNoRank) driver->missing.insert(running.key);
    ++driver->failures;
    if (driver->failures >= kFailuresMax) driver->next_step = driver->step_count;
  } else {
    if (running.has_push && !running.accepted) Violate("a push is done and was not accepted");
    const bool is_lost = key != nullptr && IsLost(*key);
    if (running.out && key != nullptr && !is_lost) {
      if (driver->rank == kNoRank) {
        if (key->meta.mode == KeyMeta::Mode::kSync) {
          model_.Observed(running.key, running.out.bytes());
        }
      } else {
        Record(*driver, running, HistoryEvent::Kind::kPull, ++logged_, outcome.round);
        if (key->meta.exact_reads() && outcome.round < running.round) {
          Violate(format("worker {} pulled version {} of {} after its push {} was accepted",
                         driver->rank, outcome.round, ShownKey(key->name), running.round));
        }
        model_.Pulled(running.key, LifeOf(*driver), key->meta.exact_reads(), outcome.round,
                      running.last_accepted, running.out.bytes());
      }
    }
    const bool is_barrier =
        running.step.kind == Step::Kind::kBarrier || running.phase == 1 || running.phase == 3;
    if (is_barrier && scenario_.policy != Epoch::Policy::kContinue &&
        !Happened({Fault::Kind::kKill, Fault::Kind::kVanish, Fault::Kind::kPause,
                   Fault::Kind::kIsolate, Fault::Kind::kHaste})) {
      const uint64_t number = running.phase == 1 ? running.step.ordinal - 1 : running.step.ordinal;
      if (barriers_[number].size() < static_cast<size_t>(scenario_.workers)) {
        Violate(format("worker {} has passed barrier {}, where {} of {} have come", driver->rank,
                       number, barriers_[number].size(), scenario_.workers));
      }
    }
    if (running.phase == 2 && driver->rank == 0) model_.Deleted(running.key);
  }
  driver->running.erase(found);
}

// Whether a server that holds a part of the key has died.
bool Simulation::IsLost(const SimKey& key) const {
  for (uint32_t c = 0; c < key.meta.chunk_count(); ++c) {
    const uint32_t server = ShardOf(IdOf(key.name), c, static_cast<uint32_t>(servers_.size()));
    if (servers_[server] == nullptr) return true;
  }
  return false;
}

// What a client has seen, for the judge of histories; `end` 0: it never learnt the outcome.
void Simulation::Record(const Driver& driver, const Driver::Running& running,
                        HistoryEvent::Kind kind, uint64_t end, uint64_t round) {
  const SimKey& key = scenario_.keys[running.key];
  if (!key.meta.exact_reads()) return;
  History& history = histories_[running.key];
  const uint32_t chunks = key.meta.chunk_count();
  const size_t item = ItemSize(key.meta.dtype);
  history.dtype = key.meta.dtype;
  history.lanes = std::min<size_t>(8, key.meta.elements_of(chunks - 1));
  size_t at = 0;
  for (uint32_t c = 0; c < chunks; ++c) {
    HistoryEvent event{kind,
                       driver.process->client()->client().incarnation(),
                       running.generation * 1000 + c,
                       running.logged_at,
                       end,
                       end == 0,
                       round,
                       {}};
    if (kind == HistoryEvent::Kind::kPush) {
      event.value = Contribution(scenario_.seed, key, running.push.life.rank,
                                 running.push.life.incarnation, running.push.ordinal);
    } else {
      for (size_t i = 0; i < history.lanes; ++i) {
        event.value[i] = Load(key.meta.dtype, running.out.data + at + i * item);
      }
      at += key.meta.bytes_of(c);
    }
    history.events.push_back(event);
    if (running.generation == 0 && history.initial.size() <= c) {
      history.initial.emplace_back(c, InitialValue(scenario_.seed, key));
    }
  }
}

// Errors have to have a reason.
void Simulation::CheckFailure(const Driver& driver, const Driver::Running& running,
                              const Error& error) {
  const bool heavy = std::any_of(
      scenario_.faults.begin(), scenario_.faults.begin() + static_cast<ptrdiff_t>(next_fault_),
      [](const Fault& fault) { return fault.kind >= Fault::Kind::kKill; });
  const bool leavers = std::any_of(scenario_.step_counts.begin(), scenario_.step_counts.end(),
                                   [&](size_t count) { return count != scenario_.steps.size(); });
  const Code code = error.code();
  const bool is_observer = driver.rank == kNoRank;
  const std::string text = error.what();
  // Whoever is gone is named at once, and only where the policy needs him.
  const bool names_gone =
      text.find("(dead)") != std::string::npos || text.find("(left)") != std::string::npos;
  if (scenario_.policy == Epoch::Policy::kFail && code == Code::kDeadlineExceeded && names_gone &&
      now_ - epoch_since_ > 4 * kSecond &&
      !Happened({Fault::Kind::kIsolate, Fault::Kind::kKillHead})) {
    return Violate(format("worker {} waited for somebody who is gone: {}", driver.rank, text));
  }
  const bool nobody_died = !Happened(
      {Fault::Kind::kKill, Fault::Kind::kVanish, Fault::Kind::kPause, Fault::Kind::kHaste});
  if (nobody_died && text.find("is dead; round") != std::string::npos) {
    return Violate(format("somebody who has left is called dead: {}", text));
  }
  const bool needs_gone = text.find("needs it") != std::string::npos;
  if (scenario_.policy == Epoch::Policy::kContinue && needs_gone) {
    return Violate(format("worker {} needed somebody who is gone: {}", driver.rank, text));
  }
  const auto is_heavy = [](const Fault& fault) { return fault.kind >= Fault::Kind::kKill; };
  const auto first = std::find_if(scenario_.faults.begin(), scenario_.faults.end(), is_heavy);
  const bool one_restart =
      std::count_if(scenario_.faults.begin(), scenario_.faults.end(), is_heavy) == 1 &&
      ((first->kind <= Fault::Kind::kVanish && first->restarts) ||
       first->kind == Fault::Kind::kHaste);
  if (scenario_.policy == Epoch::Policy::kWait && one_restart && !leavers && !is_observer &&
      code != Code::kAborted) {
    return Violate(format("worker {} did not go on with the later life: {}", driver.rank, text));
  }
  const bool only_deaths =
      !Happened({Fault::Kind::kPause, Fault::Kind::kHaste, Fault::Kind::kIsolate,
                 Fault::Kind::kKillServer, Fault::Kind::kKillHead}) &&
      std::none_of(scenario_.faults.begin(), scenario_.faults.end(), [](const Fault& fault) {
        return fault.kind >= Fault::Kind::kKill && fault.restarts;
      });
  if (scenario_.policy == Epoch::Policy::kContinue && only_deaths && !running.is_init &&
      driver.rank != kNoRank && code == Code::kDeadlineExceeded) {
    return Violate(format("worker {} did not go on without the dead: {}", driver.rank, text));
  }
  if (!heavy && !leavers && !is_observer) {
    return Violate(
        format("worker {}: an operation failed without a reason: {}", driver.rank, error.what()));
  }
  const bool missing_key = code == Code::kNotFound || code == Code::kAlreadyExists;
  if (code != Code::kUnavailable && code != Code::kDeadlineExceeded && code != Code::kAborted &&
      code != Code::kFailedPrecondition && !missing_key) {
    Violate(
        format("worker {}: a strange error: {}: {}", driver.rank, tkv::Name(code), error.what()));
  }
}

bool Simulation::Happened(std::initializer_list<Fault::Kind> kinds) const {
  return std::any_of(scenario_.faults.begin(),
                     scenario_.faults.begin() + static_cast<ptrdiff_t>(next_fault_),
                     [&](const Fault& fault) {
                       return std::find(kinds.begin(), kinds.end(), fault.kind) != kinds.end();
                     });
}

// ---- Simulation: checks -------------------------------------------------------------------------

void Simulation::Violate(const std::string& text) {
  if (report_.violation.empty()) report_.violation = text;
}

void Simulation::Completed(const Shard& shard, const ChunkId& id, const Chunk& chunk) {
  for (Process* const server : servers_) {
    if (server != nullptr && &server->server()->shard() == &shard) {
      return model_.Completed(shard, HeadEpoch(), id, chunk);
    }
  }
}

void Simulation::Event(Process* process, const char* what, uint64_t link) {
  report_.hash = Random::Mix(report_.hash ^ static_cast<uint64_t>(now_) ^ (link << 40) ^
                             static_cast<uint64_t>(what[0]));
  if (options_.trace) {
    trace_.push_back(format("{:10.6f} {:<12} link {} {}", static_cast<double>(now_) / kSecond,
                            process->address, link, what));
  }
}

// G4: nothing is held beyond values, state, the accumulators of open rounds, and what is under way.
void Simulation::CheckMemory() {
  size_t key_bytes = 0;
  for (const SimKey& key : scenario_.keys) key_bytes += key.meta.elements() * 8 + 4096;
  for (const auto& [process, driver] : drivers_) {
    const size_t bound = static_cast<size_t>(scenario_.servers) *
                         (std::max<size_t>(scenario_.credit_bytes, 1024) + 8 * 1024);
    if (process->client()->client().unaccepted_bytes() > bound) {
      Violate(format("{} has sent {} bytes that are not accepted, at most {} are allowed",
                     process->address, process->client()->client().unaccepted_bytes(), bound));
    }
  }
  for (Process* const server : servers_) {
    if (server == nullptr) continue;
    const Shard::Memory use = server->server()->shard().MemoryUse();
    const size_t bound = use.values + use.state + use.sums + use.held +
                         static_cast<size_t>(scenario_.workers + 1) *
                             (2 * scenario_.credit_bytes +
                              key_bytes * static_cast<size_t>(scenario_.outstanding + 1));
    if (server->pool.bytes_in_use() > bound) {
      Violate(format("{} holds {} bytes, at most {} are allowed", server->address,
                     server->pool.bytes_in_use(), bound));
    }
  }
}

void Simulation::CheckAtEnd() {
  for (Process* const server : servers_) {
    if (server == nullptr) continue;
    const Shard::Memory use = server->server()->shard().MemoryUse();
    const size_t known = use.values + use.state + use.sums + use.held;
    if (server->pool.bytes_in_use() != known) {
      Violate(format("{} holds {} bytes, {} of them are known", server->address,
                     server->pool.bytes_in_use(), known));
    }
  }
}

// ---- Simulation: the loop -----------------------------------------------------------------------

testing::SimulationReport Simulation::Run() {
  report_.seed = options_.seed;
  try {
    Loop();
  } catch (const std::exception& error) {
    Violate(format("an exception came out of a machine: {}", error.what()));
  }
  if (report_.violation.empty()) report_.violation = model_.violation();
  if (report_.violation.empty()) CheckAtEnd();
  if (report_.violation.empty() && !Happened({Fault::Kind::kKillServer})) {
    for (const auto& [key, history] : histories_) {
      const std::string wrong = JudgeHistory(history);
      if (!wrong.empty()) {
        Violate(format("the history of {}: {}", ShownKey(scenario_.keys[key].name), wrong));
      }
    }
  }
  report_.passed = report_.violation.empty();
  report_.events = events_;
  report_.virtual_seconds = static_cast<double>(now_) / kSecond;
  report_.trace.assign(trace_.begin(), trace_.end());
  for (const auto& [cell, count] : coverage_) {
    report_.coverage.push_back({cell[0], cell[1], cell[2], cell[3], count});
  }
  return report_;
}

void Simulation::Loop() {
  Time end = kNever;  // a little after the last driver is done
  while (report_.violation.empty() && model_.violation().empty()) {
    Process* next = nullptr;
    Time at = kNever;
    bool arrives = false;
    for (const auto& process : processes_) {
      const Time arrival = network_->NextArrival(process->address);
      const Time deadline = process->node->deadline();
      if (arrival < at) {
        at = arrival;
        next = process.get();
        arrives = true;
      }
      if (deadline < at) {
        at = deadline;
        next = process.get();
        arrives = false;
      }
    }
    for (const Period& period : periods_) {
      if (period.until > now_ && period.until < at) {
        at = period.until;
        next = nullptr;
      }
    }
    for (const Planned& planned : planned_) {
      if (planned.at < at) {
        at = planned.at;
        next = nullptr;
      }
    }
    if (at >= end) break;
    if (at == kNever) {
      Violate("nothing will ever happen again");
      break;
    }
    now_ = std::max(now_, at);
    if (++events_ > kEventsMax) {
      std::string text = "the run does not end;";
      for (const auto& [process, driver] : drivers_) {
        text += format(" {} at step {} of {}, {} under way;", process->address, driver.next_step,
                       driver.step_count, driver.running.size());
      }
      Violate(text);
      break;
    }
    if (next == nullptr) {
      std::erase_if(periods_, [&](const Period& period) { return period.until <= now_; });
      network_->Release();
      const auto due = std::find_if(planned_.begin(), planned_.end(),
                                    [&](const Planned& planned) { return planned.at <= now_; });
      if (due != planned_.end()) {
        const Planned planned = *due;
        planned_.erase(due);
        Happen(planned);
      }
      continue;
    }
    if (arrives) {
      next->endpoint->Poll(next, 1);
    } else {
      next->node->Tick(now_);
    }
    Dispatch(next);
    if (const auto driver = drivers_.find(next); driver != drivers_.end()) {
      Drive(&driver->second);
      if (driver->second.done) Remove(next, false);  // the process ends
    }
    if (HeadEpoch().number != epoch_number_) {
      epoch_number_ = HeadEpoch().number;
      epoch_since_ = now_;
    }
    Inject();
    if (events_ % 64 == 0) CheckMemory();
    const bool all_done = std::all_of(drivers_.begin(), drivers_.end(),
                                      [](const auto& entry) { return entry.second.done; });
    if (all_done && planned_.empty() && end == kNever) end = now_ + 4 * kSecond;
    if (!all_done) end = kNever;
  }
}

}  // namespace tkv::simulation

namespace tkv::testing {

SimulationReport Simulate(const SimulationOptions& options) {
  return simulation::Simulation(options).Run();
}

}  // namespace tkv::testing
