// Checks the outcomes of operations, and the memory that processes hold.

#include <algorithm>
#include <cstring>

#include "base/format.h"
#include "simulation/simulation.h"

namespace tkv::simulation {
namespace {

// Returns true if an operation has failed because a push of this worker was refused.
bool IsRefusal(const Error& error) {
  const std::string_view text = error.what();
  return error.code() == Code::kResourceExhausted ||
         text.find("has failed") != std::string_view::npos ||
         text.find("parts of this key have it") != std::string_view::npos;
}

}  // namespace

void Simulation::OnOutcome(Driver* driver, const Outcome& outcome) {
  const auto found = driver->running.find(outcome.op);
  if (found == driver->running.end()) return Violate("an operation ended twice");
  Driver::Running& running = found->second;
  // A push has failed since, so that parts of the key may differ.
  const bool is_save = running.step.kind == Step::Kind::kSave;
  const bool has_failed_since = driver->failed_pushes[running.key] != running.failed_pushes;
  if (!is_save && has_failed_since) running.is_uneven = true;
  if (options_.trace) {
    trace_.push_back(Format("{:10.6f} {:<12} op {} {} {} {}", static_cast<double>(now_) / kSecond,
                            driver->process->address, outcome.op, static_cast<int>(outcome.event),
                            outcome.round, outcome.error ? outcome.error->what() : ""));
  }
  if (now_ - running.begin > kPatience + 2 * kServerPatience + 2 * kGrace) {
    Violate(Format("an operation took {:.1f} s, its patience is {:.1f} s",
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
    model_.Accepted(running.key, running.push, outcome.round, HeadEpoch().placement, Shards());
    driver->last_accepted[running.key] = running.push.ordinal;
    driver->last_round[running.key] = outcome.round;
    running.last_accepted = running.push.ordinal;
    // The source is released, so the user may overwrite it.
    std::memset(const_cast<std::byte*>(running.value.data), 0xAB, running.value.size);
    return;
  }
  ++report_.operations;
  if (running.is_mistake) {
    if (!outcome.error || outcome.error->code() != Code::kNotFound) {
      Violate(Format("worker {} has deleted {} twice", driver->rank, ShownKey(key->name)));
    }
    driver->running.erase(found);
    return;
  }
  const bool is_barrier =
      running.step.kind == Step::Kind::kBarrier ||
      (running.step.kind == Step::Kind::kRecreate && (running.phase == 1 || running.phase == 3));
  if (outcome.event == Outcome::Event::kFailed) {
    if (is_barrier) has_barrier_failed_ = true;
    if (running.step.kind == Step::Kind::kControl) model_.ControlFailed(LifeOf(*driver));
    ++report_.failed_operations;
    CheckFailure(*driver, running, *outcome.error);
    if (running.has_push && !running.accepted) {
      // A failed call also releases the source, although its push may still be in progress.
      driver->process->endpoint->ReleaseSource(running.value.data, running.value.size);
      std::memset(const_cast<std::byte*>(running.value.data), 0xAB, running.value.size);
      ++driver->failed_pushes[running.key];
      if (IsRefusal(*outcome.error)) model_.Refused(running.key, running.push);
      model_.Failed(running.key, running.push);
      Record(*driver, running, HistoryEvent::Kind::kPush, 0, 0);
    }
    if (running.is_init && driver->rank != kNoRank) driver->missing.insert(running.key);
    const bool is_refused = IsRefusal(*outcome.error);
    if (is_refused && running.has_push && !running.accepted) KeepRefused(driver, running);
    if (!is_refused) ++driver->failures;
    if (driver->failures >= kFailuresMax) driver->next_step = driver->step_count;
  } else {
    if (running.has_push && !running.accepted) Violate("a push is done and was not accepted");
    const bool is_lost = key != nullptr && IsLost(*key);
    if (running.step.kind == Step::Kind::kSave) {
      CheckSave(*driver, running, outcome);
      Driver::Running saved = std::move(running);
      driver->running.erase(found);
      if (saved.phase == kReleasing) return;
      if (saved.phase == kCutting) {
        saved.states = outcome.As<Outcome::Cut>()->states;
        saved.round = outcome.round;
      }
      const size_t saved_key = saved.key;
      if (!StartRead(driver, std::move(saved))) StartRelease(driver, saved_key);
      return;
    }
    if (running.out.size > 0 && key != nullptr && !is_lost) {
      if (driver->rank == kNoRank) {
        if (key->meta.mode == KeyMeta::Mode::kSync) {
          model_.Observed(running.key, running.out.bytes());
        }
      } else {
        if (!running.is_uneven) {
          Record(*driver, running, HistoryEvent::Kind::kPull, ++logged_, outcome.round);
        }
        if (key->meta.exact_reads() && outcome.round < running.round) {
          Violate(Format("worker {} pulled version {} of {} after its push {} was accepted",
                         driver->rank, outcome.round, ShownKey(key->name), running.round));
        }
        const bool is_exact = key->meta.exact_reads() && !running.is_uneven;
        model_.Pulled(running.key, LifeOf(*driver), is_exact, outcome.round, running.last_accepted,
                      running.out.bytes(), running.rows);
      }
    }
    if (is_barrier && !has_barrier_failed_ && scenario_.policy != Epoch::Policy::kContinue &&
        !WasInjected({Fault::Kind::kKill, Fault::Kind::kVanish, Fault::Kind::kPause,
                      Fault::Kind::kIsolate, Fault::Kind::kHaste})) {
      const uint64_t number = running.phase == 1 ? running.step.ordinal - 1 : running.step.ordinal;
      if (barriers_[number].size() < static_cast<size_t>(scenario_.workers)) {
        Violate(Format("worker {} has passed barrier {}, where {} of {} have come", driver->rank,
                       number, barriers_[number].size(), scenario_.workers));
      }
    }
    const bool is_delete = running.step.kind == Step::Kind::kRecreate && running.phase == 2;
    if (is_delete && driver->rank == 0) model_.Deleted(running.key);
    if (running.step.kind == Step::Kind::kClose) driver->closed.insert(running.step.store);
  }
  const bool was_read = running.step.kind == Step::Kind::kSave && running.phase == kReading;
  const size_t was_key = running.key;
  driver->running.erase(found);
  if (was_read) StartRelease(driver, was_key);
}

// Checks that a saved version is the version of the worker's last push, and still reads as that
// version after later pushes.
void Simulation::CheckSave(const Driver& driver, const Driver::Running& running,
                           const Outcome& outcome) {
  const SimKey& key = scenario_.keys[running.key];
  if (running.phase == kReleasing) return;
  if (running.phase == kCutting) {
    const auto& states = *outcome.As<Outcome::Cut>()->states;
    const auto is_other = [&](const ChunkState& state) {
      return state.version != states.front().version;
    };
    if (key.meta.mode == KeyMeta::Mode::kSync && std::ranges::any_of(states, is_other)) {
      Violate(Format("worker {} has kept parts of different rounds of {}", driver.rank,
                     ShownKey(key.name)));
    }
    // A failed push may have taken no round, and a later incarnation first has to find its
    // position.
    const auto failed = driver.failed_pushes.find(running.key);
    const bool has_failed = failed != driver.failed_pushes.end() && failed->second > 0;
    const bool knows_round =
        driver.failures == 0 && !has_failed && !driver.process->client()->client().rejoined();
    if (key.meta.mode == KeyMeta::Mode::kSync && knows_round && outcome.round != running.round) {
      Violate(Format("worker {} has kept version {} of {} after its push {}", driver.rank,
                     outcome.round, ShownKey(key.name), running.round));
    }
    return;
  }
  const auto recreated = driver.recreations.find(running.key);
  const bool is_same =
      (recreated == driver.recreations.end() ? 0 : recreated->second) == running.recreations;
  if (!is_same || IsLost(key)) return;
  if (key.meta.by_rows()) {
    if (running.next_part <= kKeptParts.size()) return;  // parts are still to be read
    const auto is_other = [&](const ChunkState& state) { return state.version != running.round; };
    if (key.meta.mode == KeyMeta::Mode::kSync &&
        std::any_of(running.states->begin(), running.states->end(), is_other)) {
      Violate(Format("other versions of {} are kept than {}", ShownKey(key.name), running.round));
    }
    return model_.Kept(running.key, LifeOf(driver), running.last_accepted, *running.states,
                       running.parts, running.out.bytes());
  }
  model_.Pulled(running.key, LifeOf(driver), key.meta.mode == KeyMeta::Mode::kSync, running.round,
                running.last_accepted, running.out.bytes());
}

// Returns true if a server that holds a part of the key has died.
bool Simulation::IsLost(const SimKey& key) const {
  for (uint32_t c = 0; c < key.meta.chunk_count(); ++c) {
    if (servers_[ServerOf(HeadEpoch().placement, IdOf(key.name), c)] == nullptr) return true;
  }
  return false;
}

// Records an operation for the judge of histories.
//   end  position of its end; 0: the client never learnt the outcome
void Simulation::Record(const Driver& driver, const Driver::Running& running,
                        HistoryEvent::Kind kind, uint64_t end, uint64_t round) {
  const SimKey& key = scenario_.keys[running.key];
  if (!key.meta.exact_reads() || key.meta.by_rows()) return;
  History& history = histories_[running.key];
  const uint32_t chunks = key.meta.chunk_count();
  const size_t item = ItemSize(key.meta.dtype);
  history.dtype = key.meta.dtype;
  history.lanes = std::min<size_t>(8, key.meta.elements_of(chunks - 1));
  size_t at = 0;
  for (uint32_t c = 0; c < chunks; ++c) {
    HistoryEvent event{kind,
                       driver.process->client()->client().incarnation(),
                       running.recreations * 1000 + c,
                       running.logged_at,
                       end,
                       end == 0,
                       round,
                       {},
                       driver.rank};
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
    if (running.recreations == 0 && history.initial.size() <= c) {
      history.initial.emplace_back(c, InitialValue(scenario_.seed, key));
    }
  }
}

// Checks that an error has a reason among the faults and the other workers.
void Simulation::CheckFailure(const Driver& driver, const Driver::Running& running,
                              const Error& error) {
  const bool heavy = std::any_of(
      scenario_.faults.begin(), scenario_.faults.begin() + static_cast<ptrdiff_t>(next_fault_),
      [](const Fault& fault) { return fault.kind >= Fault::Kind::kKill; });
  const bool leavers = std::any_of(scenario_.step_counts.begin(), scenario_.step_counts.end(),
                                   [&](size_t count) { return count != scenario_.steps.size(); });
  const Code code = error.code();
  const bool is_cut = running.step.kind == Step::Kind::kSave && running.phase == kCutting;
  if (is_cut && running.is_uneven && code == Code::kFailedPrecondition) return;
  const bool is_observer = driver.rank == kNoRank;
  const std::string text = error.what();
  // Under the policy `fail`, an operation fails at once if a worker is dead or has left.  Only a
  // restarted worker waits for the next process of a dead one.
  const bool waits_for_lives =
      scenario_.lives_return && driver.process->client()->client().rejoined();
  const bool names_gone = (text.find("(dead)") != std::string::npos && !waits_for_lives) ||
                          text.find("(left)") != std::string::npos;
  if (scenario_.policy == Epoch::Policy::kFail && code == Code::kDeadlineExceeded && names_gone &&
      now_ - epoch_since_ > 4 * kSecond &&
      !WasInjected({Fault::Kind::kIsolate, Fault::Kind::kKillHead})) {
    return Violate(Format("worker {} waited for somebody who is gone: {}", driver.rank, text));
  }
  const bool nobody_died = !WasInjected(
      {Fault::Kind::kKill, Fault::Kind::kVanish, Fault::Kind::kPause, Fault::Kind::kHaste});
  if (nobody_died && text.find("is dead; round") != std::string::npos) {
    return Violate(Format("somebody who has left is called dead: {}", text));
  }
  if (text.find("lost its values") != std::string::npos &&
      !WasInjected({Fault::Kind::kKillServer})) {
    return Violate(Format("a server that lives is said to have lost its values: {}", text));
  }
  const bool needs_gone = text.find("needs it") != std::string::npos;
  if (scenario_.policy == Epoch::Policy::kContinue && needs_gone) {
    return Violate(Format("worker {} needed somebody who is gone: {}", driver.rank, text));
  }
  const auto is_heavy = [](const Fault& fault) { return fault.kind >= Fault::Kind::kKill; };
  const auto first = std::find_if(scenario_.faults.begin(), scenario_.faults.end(), is_heavy);
  const bool one_restart =
      std::count_if(scenario_.faults.begin(), scenario_.faults.end(), is_heavy) == 1 &&
      ((first->kind <= Fault::Kind::kVanish && first->restarts) ||
       first->kind == Fault::Kind::kHaste);
  const bool waits_in_vain = scenario_.policy == Epoch::Policy::kContinue &&
                             code == Code::kDeadlineExceeded && !running.is_init &&
                             !HasUnknownEnd();
  if ((scenario_.policy == Epoch::Policy::kWait || waits_in_vain) && one_restart && !leavers &&
      !is_observer && code != Code::kAborted) {
    return Violate(Format("worker {} did not go on with the later life: {}", driver.rank, text));
  }
  const bool only_deaths =
      !WasInjected({Fault::Kind::kPause, Fault::Kind::kHaste, Fault::Kind::kIsolate,
                    Fault::Kind::kKillServer, Fault::Kind::kKillHead}) &&
      std::none_of(scenario_.faults.begin(), scenario_.faults.end(), [](const Fault& fault) {
        return fault.kind >= Fault::Kind::kKill && fault.restarts;
      });
  if (scenario_.policy == Epoch::Policy::kContinue && only_deaths && !running.is_init &&
      driver.rank != kNoRank && code == Code::kDeadlineExceeded && !HasUnknownEnd()) {
    return Violate(Format("worker {} did not go on without the dead: {}", driver.rank, text));
  }
  if (!heavy && !leavers && !is_observer) {
    return Violate(
        Format("worker {}: an operation failed without a reason: {}", driver.rank, error.what()));
  }
  const bool is_refused = IsRefusal(error);
  const bool only_refusals = std::ranges::all_of(scenario_.faults, [](const Fault& fault) {
    return fault.kind < Fault::Kind::kKill || fault.kind == Fault::Kind::kRefuse;
  });
  if (only_refusals && heavy && !leavers && !is_observer && !is_refused) {
    return Violate(Format("worker {}: no push was refused: {}", driver.rank, text));
  }
  if (is_refused && WasInjected({Fault::Kind::kRefuse})) return;
  const bool missing_key = code == Code::kNotFound || code == Code::kAlreadyExists;
  if (code != Code::kUnavailable && code != Code::kDeadlineExceeded && code != Code::kAborted &&
      code != Code::kFailedPrecondition && !missing_key) {
    Violate(
        Format("worker {}: a strange error: {}: {}", driver.rank, tkv::Name(code), error.what()));
  }
}

// Returns true if a worker has ended before the head knew of it.  Other workers still wait for it
// then.
bool Simulation::HasUnknownEnd() const {
  for (int rank = 0; rank < scenario_.workers; ++rank) {
    const bool is_awaited = HeadEpoch().StateOf(rank) == Epoch::State::kAwaited;
    if (is_awaited && WorkerOf(rank) == nullptr) return true;
  }
  return false;
}

bool Simulation::WasInjected(std::initializer_list<Fault::Kind> kinds) const {
  return std::any_of(scenario_.faults.begin(),
                     scenario_.faults.begin() + static_cast<ptrdiff_t>(next_fault_),
                     [&](const Fault& fault) {
                       return std::find(kinds.begin(), kinds.end(), fault.kind) != kinds.end();
                     });
}

void Simulation::Violate(const std::string& text) {
  if (report_.violation.empty()) report_.violation = text;
}

void Simulation::Completed(const ShardCore& shard, const ChunkId& id, const Chunk& chunk) {
  for (Process* const server : servers_) {
    if (server != nullptr && &server->server()->shard().core() == &shard) {
      return model_.Completed(shard, HeadEpoch(), id, chunk);
    }
  }
}

void Simulation::RecordEvent(Process* process, const char* what, uint64_t link) {
  report_.hash = Random::Mix(report_.hash ^ static_cast<uint64_t>(now_) ^ (link << 40) ^
                             static_cast<uint64_t>(what[0]));
  if (options_.trace) {
    trace_.push_back(Format("{:10.6f} {:<12} link {} {}", static_cast<double>(now_) / kSecond,
                            process->address, link, what));
  }
}

// Checks that servers hold only values, state, the accumulators of open rounds, and messages in
// progress.
void Simulation::CheckMemory() {
  size_t key_bytes = 0;
  for (const SimKey& key : scenario_.keys) {
    const size_t elements =
        static_cast<size_t>(key.meta.elements()) * (key.meta.by_rows() ? 2 * kRowIds : 1);
    key_bytes += elements * 8 + 4096 + key.other_rows * (sizeof(uint64_t) + key.meta.row_bytes());
  }
  for (const auto& [process, driver] : drivers_) {
    const size_t bound = static_cast<size_t>(scenario_.servers) *
                         (std::max<size_t>(scenario_.credit_bytes, 1024) + 8 * 1024);
    if (process->client()->client().unaccepted_bytes() > bound) {
      Violate(Format("{} has sent {} bytes that are not accepted, at most {} are allowed",
                     process->address, process->client()->client().unaccepted_bytes(), bound));
    }
  }
  for (Process* const server : servers_) {
    if (server == nullptr) continue;
    const Shard::Memory use = server->server()->shard().MemoryUse();
    const size_t bound = use.values + use.state + use.sums + use.held + use.cuts +
                         static_cast<size_t>(scenario_.workers + 1) *
                             (2 * scenario_.credit_bytes +
                              key_bytes * static_cast<size_t>(scenario_.outstanding + 1));
    if (server->pool.bytes_in_use() > bound) {
      Violate(Format("{} holds {} bytes, at most {} are allowed", server->address,
                     server->pool.bytes_in_use(), bound));
    }
  }
}

// Checks that servers count the waiting pulls of each session correctly.
void Simulation::CheckParked() {
  for (Process* const server : servers_) {
    if (server == nullptr) continue;
    for (const SessionId& id : server->server()->shard().Miscounted()) {
      Violate(
          Format("{} miscounts what waits for {}", server->address,
                 id.rank == kNoRank ? std::string("an observer") : Format("worker {}", id.rank)));
    }
  }
}

// Checks the stores that workers close.  Keys exist while some worker may use them.  They are
// removed when every worker that is alive or may return has closed the store.
void Simulation::CheckStores() {
  if (closers_.empty() || WasInjected({Fault::Kind::kKillServer, Fault::Kind::kIsolate})) return;
  for (size_t server = 0; server < servers_.size(); ++server) {
    const Shard& shard = servers_[server]->server()->shard();
    for (const SimKey& key : scenario_.keys) {
      if (closers_.contains(StoreOf(key.name)))
        CheckStore(shard, static_cast<uint32_t>(server), key);
    }
  }
}

void Simulation::CheckStore(const Shard& shard, uint32_t server, const SimKey& key) {
  const KeyId id = IdOf(key.name);
  bool has_chunk = false;
  for (uint32_t c = 0; c < key.meta.chunk_count(); ++c) {
    has_chunk = has_chunk || ServerOf(HeadEpoch().placement, id, c) == server;
  }
  const size_t index = key_index_.at(id);
  const uint32_t store = StoreOf(key.name);
  const bool is_there = shard.FindKey(id) != nullptr;
  const bool comes_and_goes = std::any_of(
      scenario_.steps.begin(), scenario_.steps.end(),
      [&](const Step& step) { return step.kind == Step::Kind::kRecreate && step.key == index; });
  bool all_closed = true;
  bool by_somebody = false;
  for (Rank rank = 0; rank < scenario_.workers; ++rank) {
    if (shard.epoch().IsLast(rank)) continue;
    const Driver* const driver = DriverOf(rank, shard.epoch());
    // If a dead incarnation has closed a store, its successor has to close it again.
    const bool is_alive = shard.epoch().StateOf(rank) == Epoch::State::kAlive;
    all_closed = all_closed && is_alive && driver != nullptr && driver->closed.contains(store);
    if (driver == nullptr) continue;
    by_somebody = true;
    const bool uses_it =
        driver->started && !driver->closing.contains(store) && !driver->missing.contains(index);
    if (uses_it && has_chunk && !is_there && !comes_and_goes) {
      Violate(Format("server {}: {} is gone, and worker {} has not closed its store", server,
                     ShownKey(key.name), rank));
    }
  }
  if (is_there && all_closed && by_somebody) {
    Violate(Format("server {}: {} is still there, and all have closed its store", server,
                   ShownKey(key.name)));
  }
}

// Returns the driver of the incarnation that an EPOCH names for a rank, or null if it has ended.
const Driver* Simulation::DriverOf(Rank rank, const Epoch& epoch) const {
  // No incarnation has joined yet.
  if (static_cast<size_t>(rank) >= epoch.workers.size()) return nullptr;
  const uint64_t incarnation = epoch.workers[static_cast<size_t>(rank)].incarnation;
  for (const auto& [process, driver] : drivers_) {
    if (driver.rank == rank && process->client()->joined() &&
        LifeOf(driver).incarnation == incarnation) {
      return &driver;
    }
  }
  return nullptr;
}

void Simulation::CheckAtEnd() {
  CheckParked();
  for (Process* const server : servers_) {
    if (server == nullptr) continue;
    const Shard::Memory use = server->server()->shard().MemoryUse();
    const size_t known = use.values + use.state + use.sums + use.held + use.cuts;
    if (server->pool.bytes_in_use() != known) {
      Violate(Format("{} holds {} bytes, {} of them are known", server->address,
                     server->pool.bytes_in_use(), known));
    }
  }
}

}  // namespace tkv::simulation
