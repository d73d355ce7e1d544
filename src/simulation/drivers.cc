// Runs the workers' programs: chooses and starts the next operation.

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/check.h"
#include "base/format.h"
#include "simulation/simulation.h"
#include "tkv/optimizer.h"

namespace tkv::simulation {
namespace {

const std::string& AccumulateProgram() {
  static const std::string text = Optimizer::Create("test")->program().ToText();
  return text;
}

}  // namespace

void Simulation::StartWorker(int rank) {
  Process* const process = Add(Process::Kind::kWorker, rank);
  Driver& driver = drivers_[process];
  driver.process = process;
  driver.born = now_;
  driver.rank = static_cast<Rank>(rank);
  driver.step_count = scenario_.step_counts[static_cast<size_t>(rank)];
}

// Returns the newest incarnation of a rank, or null if there is none.
Process* Simulation::WorkerOf(int rank) const {
  for (auto at = processes_.rbegin(); at != processes_.rend(); ++at) {
    if ((*at)->kind == Process::Kind::kWorker && (*at)->index == rank) return at->get();
  }
  return nullptr;
}

Life Simulation::LifeOf(const Driver& driver) const {
  return {driver.rank, driver.process->client()->client().incarnation()};
}

// Returns the key and the push of a PUSH message, normally found by the owner of its body.  If the
// body was copied since, because its push failed or was cancelled, its round identifies the push.
// If the model does not know that round yet, the contents identify the push.
std::optional<std::pair<size_t, Push>> Simulation::PushOf(const Driver& driver,
                                                          const Message& message) const {
  const auto body = bodies_.find(message.body.owner.get());
  if (body != bodies_.end() && !body->second.owner.expired()) {
    return std::pair(body->second.key, body->second.push);
  }
  const auto found = key_index_.find(message.key);
  if (found == key_index_.end()) return std::nullopt;
  const size_t key = found->second;
  if (const auto push = model_.PushOf(key, LifeOf(driver), message.number)) {
    return std::pair(key, *push);
  }
  const SimKey& sim = scenario_.keys[key];
  for (const auto& [started, push] : started_) {
    if (started != key || push.life != LifeOf(driver) || model_.HasLeft(key, push)) continue;
    codec::Contribution sent =
        Encoded(scenario_.seed, sim, driver.rank, push.life.incarnation, push.ordinal);
    if (sent.encoding != message.encoding || codec::Cut(sim.meta, &sent)) continue;
    const Bytes part = sent.PartOf(message.chunk);
    const bool is_same = part.size == message.body.size &&
                         std::equal(part.data, part.data + part.size, message.body.data);
    if (is_same) return std::pair(key, push);
  }
  return std::nullopt;
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
  static constexpr const char* kVerbs[] = {
      "init",  "open",  "push", "pull", "pushpull", "wait",  "barrier", "set_optimizer", "delete",
      "close", "close", "save", "save", "save",     "stats", "load",    "load"};
  TKV_CHECK(operation.request.index() < std::size(kVerbs));
  operation.verb = kVerbs[operation.request.index()];
  running.begin = now_;
  if (operation.Is<Operation::Control>() && isolations_ > 0) {
    --isolations_;
    planned_.push_back({now_ + random_.Between(200, 1500) * 1000, driver->process->index,
                        Planned::Kind::kIsolate});
  }
  running.logged_at = ++logged_;
  running.recreations = driver->recreations[running.key];
  // The client may send messages within Begin, so the operation has to be known before.
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

// Starts the next operation.  Returns false if it has to wait or the program has ended.
bool Simulation::StartNext(Driver* driver) {
  const Client& client = driver->process->client()->client();
  if (client.closed() || driver->process->client()->member().refused()) {
    driver->done = driver->running.empty();
    return false;
  }
  if (driver->next_init < scenario_.keys.size()) {
    if (!driver->running.empty()) return false;
    if (StartEarlyControl(driver)) return true;
    if (IsClosedForLaterLife(*driver, driver->next_init)) {
      driver->missing.insert(driver->next_init++);
      return true;
    }
    StartInit(driver);
    return true;
  }
  if (driver->rank != kNoRank && client.rejoined() && !driver->opened_barrier) {
    if (!driver->running.empty()) return false;
    driver->opened_barrier = true;
    Operation open;
    open.request = Operation::Open{};
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
  if (StartRefused(driver)) return true;
  if (driver->next_step < driver->step_count) {
    if (driver->rank == kNoRank) {
      if (!driver->running.empty()) return false;
      Step step;
      step.kind = Step::Kind::kPull;
      if (!driver->opened) {  // opens the key (again), and pulls it in the next step
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
    const bool alone = step.kind == Step::Kind::kBarrier || step.kind == Step::Kind::kRecreate ||
                       step.kind == Step::Kind::kClose ||
                       (step.kind == Step::Kind::kControl && !scenario_.has_hasty_controls);
    if (alone && !driver->running.empty()) return false;
    if (driver->running.size() >= static_cast<size_t>(scenario_.outstanding)) return false;
    if (step.kind == Step::Kind::kRecreate &&
        IsClosed(*driver, StoreOf(scenario_.keys[step.key].name))) {
      ++driver->next_step;
      return true;
    }
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
  leave.request = Operation::Leave{};
  Begin(driver, std::move(leave), {});
  return true;
}

Operation::Init Simulation::InitOf(const SimKey& key) const {
  return {std::make_shared<const KeyMeta>(key.meta), Initial(scenario_.seed, key)};
}

void Simulation::StartInit(Driver* driver) {
  const size_t index = driver->next_init++;
  const SimKey& key = scenario_.keys[index];
  if (driver->rank != kNoRank) model_.Created(index);
  Operation init;
  init.key = key.name;
  if (driver->rank == kNoRank) {
    init.request = Operation::Open{};
  } else {
    init.request = InitOf(key);
  }
  Driver::Running running;
  running.is_init = true;
  running.key = index;
  Begin(driver, std::move(init), std::move(running));
}

// Starts a CONTROL of a later incarnation of worker 0 before its init of this key.  Returns true if
// it did.
bool Simulation::StartEarlyControl(Driver* driver) {
  const Client& client = driver->process->client()->client();
  if (scenario_.control_before_init != driver->next_init || driver->rank != 0 ||
      !client.rejoined() || driver->was_early) {
    return false;
  }
  driver->was_early = true;
  Step step;
  step.kind = Step::Kind::kControl;
  step.accumulate = scenario_.early_accumulates;
  step.store = StoreOf(scenario_.keys[driver->next_init].name);
  return StartStep(driver, step);
}

bool Simulation::IsClosed(const Driver& driver, uint32_t store) const {
  return driver.closing.contains(store);
}

// Returns true if a restarted program knows that it has already closed the key's store.
bool Simulation::IsClosedForLaterLife(const Driver& driver, size_t key) const {
  if (driver.rank == kNoRank || !driver.process->client()->client().rejoined()) return false;
  const auto closers = closers_.find(StoreOf(scenario_.keys[key].name));
  if (closers == closers_.end()) return false;
  // If workers may return, the store stays open until the later incarnation has closed it as well.
  const bool is_held = scenario_.policy == Epoch::Policy::kWait || scenario_.lives_return;
  return !is_held || closers->second.contains(driver.rank);
}

// Returns the rows that a step's pull requests; an observer requests all.
RowSet Simulation::AskedRows(const Driver& driver, const Step& step) const {
  const SimKey& key = scenario_.keys[step.key];
  const uint64_t drawn = Random::Mix(scenario_.seed ^ step.ordinal << 20 ^
                                     static_cast<uint64_t>(driver.rank) << 8 ^ step.key);
  const bool all = !key.meta.by_rows() || driver.rank == kNoRank || drawn % 3 == 0;
  return all ? kAllRows : static_cast<RowSet>(drawn >> 8 & kAllRows);
}

// Notes a push that a server has refused, so that the program makes it again.
void Simulation::KeepRefused(Driver* driver, const Driver::Running& running) {
  Driver::Running again;
  again.step = running.step;
  again.key = running.key;
  again.recreations = running.recreations;
  driver->refused.push_back(std::move(again));
}

// Starts a refused push again.  Returns false if there is none.
bool Simulation::StartRefused(Driver* driver) {
  while (!driver->refused.empty()) {
    const Driver::Running again = std::move(driver->refused.front());
    driver->refused.pop_front();
    if (driver->recreations[again.key] != again.recreations) continue;  // the key was made anew
    return StartStep(driver, again.step);
  }
  return false;
}

bool Simulation::StartStep(Driver* driver, const Step& step) {
  const bool pushes = step.kind == Step::Kind::kPush || step.kind == Step::Kind::kPushPull;
  const bool is_barrier = step.kind == Step::Kind::kBarrier;
  const SimKey& key = scenario_.keys[step.key];
  const Client& client = driver->process->client()->client();
  const bool is_of_key =
      !is_barrier && step.kind != Step::Kind::kControl && step.kind != Step::Kind::kClose;
  if (is_of_key && driver->missing.contains(step.key)) return true;
  const uint32_t store = step.kind == Step::Kind::kControl ? step.store : StoreOf(key.name);
  if (!is_barrier && step.kind != Step::Kind::kClose && IsClosed(*driver, store)) return true;
  // A later incarnation skips steps of rounds that its key had reached before it joined.
  const bool has_rounds = is_barrier || key.meta.mode == KeyMeta::Mode::kSync;
  const size_t slot = is_barrier ? scenario_.keys.size() : step.key;
  if ((pushes || is_barrier) && has_rounds && step.ordinal <= driver->rounds_at_start[slot]) {
    return true;
  }
  const bool reads = step.kind == Step::Kind::kPull || step.kind == Step::Kind::kWait ||
                     step.kind == Step::Kind::kSave;
  if (reads && has_rounds && driver->rank != kNoRank &&
      step.ordinal < driver->rounds_at_start[slot]) {
    return true;
  }
  Operation operation;
  Driver::Running running;
  running.step = step;
  running.key = step.key;
  running.is_uneven = reads && client.MustRepeat(key.name);
  running.failed_pushes = driver->failed_pushes[step.key];
  operation.key = key.name;
  if (scenario_.has_priorities) {
    operation.priority = static_cast<int>((7 * step.ordinal + 3 * step.key) % 5) - 2;
  }
  Operation::Push push;
  Operation::Pull pull;
  if (pushes) {
    running.has_push = true;
    running.push = {LifeOf(*driver), ++driver->ordinal};
    push.value =
        Encoded(scenario_.seed, key, driver->rank, running.push.life.incarnation, driver->ordinal);
    running.value = push.value.bytes;
    bodies_[running.value.owner.get()] = {running.value.owner, step.key, running.push};
    started_.emplace(step.key, running.push);
  }
  const auto last = driver->last_accepted.find(step.key);
  if (last != driver->last_accepted.end()) {
    running.last_accepted = last->second;
    running.round = driver->last_round[step.key];
  }
  if (is_barrier) barriers_[step.ordinal].insert(driver->rank);
  if (step.kind == Step::Kind::kPull || step.kind == Step::Kind::kPushPull) {
    running.rows = AskedRows(*driver, step);
    running.out = driver->process->pool.Allocate(PulledBytes(key, running.rows));
    std::memset(running.out.data, 0xEE, running.out.size);
    pull = {AskFor(key, running.rows), running.out};
  }
  switch (step.kind) {
    case Step::Kind::kPush:
      operation.request = std::move(push);
      break;
    case Step::Kind::kPull:
      operation.request = std::move(pull);
      break;
    case Step::Kind::kPushPull:
      operation.request = Operation::PushPull{std::move(push), std::move(pull)};
      break;
    case Step::Kind::kWait:
      operation.request = Operation::Wait{};
      break;
    case Step::Kind::kBarrier:
      operation.request = Operation::Barrier{};
      break;
    case Step::Kind::kSave:
      for (const auto& [id, other] : driver->running) {
        if (other.step.kind == Step::Kind::kSave && other.key == step.key) return true;
      }
      if (driver->rank != 0) return true;
      operation.request = Operation::Cut{};
      running.round = client.RoundAfter(key.name, client.next_op()) - 1;
      break;
    case Step::Kind::kClose:
      operation.request = Operation::Close{};
      operation.key.clear();
      operation.store = step.store;
      driver->closing.insert(step.store);
      closers_[step.store].insert(driver->rank);
      break;
    default:
      if (driver->rank != 0 || !client.IsSender()) return true;
      Operation::Control control;
      if (step.accumulate) {
        control.spec.program = AccumulateProgram();
        control.spec.params = {1.0};
      }
      operation.request = std::move(control);
      operation.key.clear();
      operation.store = step.store;
      running.last_push = driver->ordinal;
  }
  Begin(driver, std::move(operation), std::move(running));
  return true;
}

// Chooses the next part to be read from the saved version, or the values by ids after all parts.
// Returns false if everything has been read.
bool Simulation::ChooseRows(const Driver& driver, Driver::Running* saved,
                            Operation::Read* read) const {
  const SimKey& key = scenario_.keys[saved->key];
  while (saved->next_part < kKeptParts.size()) {
    read->part = kKeptParts[saved->next_part++];
    read->rows = {};
    for (const ChunkState& state : *saved->states) {
      if (state.HasPart(read->part)) read->rows.count += state.RowsOf(read->part);
    }
    if (read->rows.count == 0) continue;
    saved->out = driver.process->pool.Allocate(
        read->rows.count * ChunkState::RowBytes(read->part, key.meta.dtype, key.meta.elements()));
    saved->parts[read->part] = saved->out;
    return true;
  }
  if (saved->next_part++ > kKeptParts.size()) return false;
  read->part = ChunkState::kValue;
  read->pull.ids = AskFor(key, kAllRows);
  saved->out = driver.process->pool.Allocate(PulledBytes(key, kAllRows));
  return true;
}

// Starts to read the saved version, while the program continues.  Returns false if everything has
// been read.
bool Simulation::StartRead(Driver* driver, Driver::Running saved) {
  const SimKey& key = scenario_.keys[saved.key];
  if (saved.phase == kReading && !key.meta.by_rows()) return false;
  saved.phase = kReading;
  Operation::Read read;
  read.meta = std::make_shared<const KeyMeta>(key.meta);
  read.states = saved.states;
  if (!key.meta.by_rows()) {
    saved.out = driver->process->pool.Allocate(key.meta.elements() * ItemSize(key.meta.dtype));
  } else if (!ChooseRows(*driver, &saved, &read)) {
    return false;
  }
  std::memset(saved.out.data, 0xEE, saved.out.size);
  read.pull.out = saved.out;
  Operation operation;
  operation.key = key.name;
  operation.request = std::move(read);
  Begin(driver, std::move(operation), std::move(saved));
  return true;
}

// Releases the saved versions of the key's store after all of them have been read.
void Simulation::StartRelease(Driver* driver, size_t key) {
  const uint32_t store = StoreOf(scenario_.keys[key].name);
  for (const auto& [id, running] : driver->running) {
    const bool is_save = running.step.kind == Step::Kind::kSave && running.phase != kReleasing;
    if (is_save && StoreOf(scenario_.keys[running.key].name) == store) return;
  }
  Operation release;
  release.request = Operation::Release{};
  release.store = store;
  Driver::Running running;
  running.step.kind = Step::Kind::kSave;
  running.phase = kReleasing;
  running.key = key;
  Begin(driver, std::move(release), std::move(running));
}

// Starts the next phase of recreating a key: barrier, delete, barrier, init.
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
    operation.request = Operation::Barrier{};
  } else if (running.phase == 2) {
    operation.request = Operation::Delete{};
    driver->last_accepted.erase(step.key);
    driver->last_round.erase(step.key);
    ++driver->recreations[step.key];
  } else {
    driver->recreate_phase = 0;
    ++driver->next_step;
    model_.Created(step.key);
    operation.request = InitOf(key);
    running.is_init = true;
  }
  const bool deletes_twice = running.phase == 2 && scenario_.deletes_twice;
  Begin(driver, std::move(operation), std::move(running));
  if (!deletes_twice) return;
  Operation again;
  again.request = Operation::Delete{};
  again.key = key.name;
  Driver::Running mistake;
  mistake.key = step.key;
  mistake.is_mistake = true;
  Begin(driver, std::move(again), std::move(mistake));
}

}  // namespace tkv::simulation
