// Injects faults into links and processes.

#include <algorithm>

#include "base/format.h"
#include "simulation/simulation.h"

namespace tkv::simulation {
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

bool Simulation::RefusesPush(const ShardCore& shard, const ChunkId& id) {
  if (!key_index_.contains(id.key)) return false;  // programs do not repeat barriers
  for (const Period& period : periods_) {
    if (period.kind != Fault::Kind::kRefuse || period.until < now_) continue;
    for (Process* const server : servers_) {
      const bool is_its = server != nullptr && server->address == period.from;
      const bool refuses = is_its && refusals_left_ > 0 && random_.Chance(0.3);
      if (!refuses || &server->server()->shard().core() != &shard) continue;
      --refusals_left_;
      return true;
    }
  }
  return false;
}

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
  Process* const dropped = fault.of_observer ? pick(Process::Kind::kObserver) : worker;
  if (dropped == nullptr) return;
  Time lasts = choice.Between(1, 1500) * kMillisecond;
  switch (fault.kind) {
    case Fault::Kind::kDrop:
      network_->Sever(dropped->address, target->address);
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
      lasts *= 2;  // up to 3 s: too short for the head to declare a member dead
      const bool forth = choice.Chance(0.5);
      if (target == head_) {  // two successive cuts would be too long
        Time& next = next_cut_from_head_[worker->address];
        if (next > now_) break;
        next = now_ + lasts + 2 * kSecond;
      }
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
      Kill(worker, fault, &choice);
      for (int rank = 0; fault.of_all && rank < scenario_.workers; ++rank) {
        Process* const other = WorkerOf(rank);
        if (other == nullptr) continue;
        planned_.push_back(
            {now_ + choice.Between(200, 8000) * kMillisecond, rank, Planned::Kind::kBegin});
        Kill(other, fault, &choice);
      }
      break;
    }
    case Fault::Kind::kIsolate:
      ++isolations_;
      break;
    case Fault::Kind::kRefuse:
      periods_.push_back({fault.kind, now_ + lasts, server->address, ""});
      refusals_left_ = static_cast<int>(choice.Between(1, 4));
      break;
    case Fault::Kind::kHaste:
      // The messages of the old incarnation are delayed.  Meanwhile the new incarnation joins, and
      // the servers learn of it late.
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
    trace_.push_back(Format("{:10.6f} FAULT {} ({}, {})", static_cast<double>(now_) / kSecond,
                            Name(fault.kind), fault.choice, fault.restarts));
  }
}

// Ends a worker.  A launcher may report this to the head, and does so if it restarts workers.
void Simulation::Kill(Process* worker, const Fault& fault, Random* choice) {
  const auto rank = static_cast<Rank>(worker->index);
  const uint64_t incarnation =
      worker->client()->joined() ? worker->client()->client().incarnation() : 0;
  Remove(worker, fault.kind == Fault::Kind::kVanish);
  if (head_ == nullptr) return;
  const bool is_told = fault.kind == Fault::Kind::kKill && choice->Chance(0.5);
  if (is_told || scenario_.lives_return) head_->head()->Exited(Role::kWorker, rank, incarnation);
  if (scenario_.lives_return && !fault.restarts) head_->head()->Gone(Role::kWorker, rank, true);
  Dispatch(head_);
}

void Simulation::HandlePlanned(const Planned& planned) {
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

}  // namespace tkv::simulation
