#include "simulation/simulation.h"

#include <algorithm>

#include "base/format.h"

namespace tkv::simulation {
namespace {

constexpr uint64_t kEventsMax = 400'000;
constexpr int kObserverPulls = 10;

}  // namespace

Simulation::Simulation(const testing::SimulationOptions& options)
    : options_(options),
      scenario_(MakeScenario(options)),
      model_(scenario_),
      random_(options.seed ^ 0x5EED) {
  network_ = std::make_unique<InprocNetwork>(InprocOptions{[this] { return now_; }, this, 2});
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

std::string Simulation::AddressOf(const tkv::Peer& peer) const {
  return peer.kind == tkv::Peer::Kind::kHead ? "head" : Format("server{}", peer.index);
}

void Simulation::Dispatch(Process* process) {
  NodeOutput output = process->node->TakeOutput();
  for (const NodeOutput::Dial& dial : output.dials) {
    process->endpoint->Dial(dial.link, AddressOf(dial.peer));
  }
  for (NodeOutput::Send& send : output.sends) {
    process->endpoint->Send(send.link, std::move(send.frame));
  }
  for (const LinkId link : output.closes) process->endpoint->Close(link);
  for (const NodeOutput::Reading& reading : output.readings) {
    Time at = now_ + process->disk_times.Between(0, 5 * kMillisecond);
    while (process->readings.contains(at)) ++at;
    process->readings.emplace(at, reading.ticket);
  }
  if (options_.trace) {
    for (const Effects::Notice& notice : output.notices) {
      trace_.push_back(Format("{:10.6f} {:<12} {}", static_cast<double>(now_) / kSecond,
                              process->address, notice.text));
    }
  }
}

testing::SimulationReport Simulation::Run() {
  report_.seed = options_.seed;
  try {
    Loop();
  } catch (const std::exception& error) {
    Violate(Format("an exception came out of a machine: {}", error.what()));
  }
  if (report_.violation.empty()) report_.violation = model_.violation();
  if (report_.violation.empty()) CheckAtEnd();
  if (report_.violation.empty() && !WasInjected({Fault::Kind::kKillServer})) {
    for (const auto& [key, history] : histories_) {
      const std::string wrong = JudgeHistory(history);
      if (!wrong.empty()) {
        Violate(Format("the history of {}: {}", ShownKey(scenario_.keys[key].name), wrong));
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
  Time end = kNever;  // a little after the last driver has ended
  while (report_.violation.empty() && model_.violation().empty()) {
    Process* next = nullptr;
    Time at = kNever;
    bool arrives = false, has_read = false;
    for (const auto& process : processes_) {
      const Time arrival = network_->NextArrival(process->address);
      const Time deadline = process->node->deadline();
      if (arrival < at) {
        at = arrival;
        next = process.get();
        arrives = true;
        has_read = false;
      }
      if (deadline < at) {
        at = deadline;
        next = process.get();
        arrives = false;
        has_read = false;
      }
      if (!process->readings.empty() && process->readings.begin()->first < at) {
        at = process->readings.begin()->first;
        next = process.get();
        has_read = true;
      }
    }
    for (const Period& period : periods_) {
      if (period.until < at) {  // a period that ends at the time of an event ends after the event
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
        text += Format(" {} at step {} of {}, {} under way;", process->address, driver.next_step,
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
        HandlePlanned(planned);
      }
      continue;
    }
    if (has_read) {
      const uint64_t ticket = next->readings.begin()->second;
      next->readings.erase(next->readings.begin());
      next->node->ReadEnded(ticket, now_);
    } else if (arrives) {
      next->endpoint->Poll(next, 1);
    } else {
      next->node->Tick(now_);
    }
    Dispatch(next);
    if (const auto driver = drivers_.find(next); driver != drivers_.end()) {
      Drive(&driver->second);
      if (driver->second.done) Remove(next, false);
    }
    if (HeadEpoch().number != epoch_number_) {
      epoch_number_ = HeadEpoch().number;
      epoch_since_ = now_;
    }
    Inject();
    if (events_ % 64 == 0) CheckMemory();
    if (events_ % 16 == 0) CheckStores();
    if (events_ % 16 == 0) CheckParked();
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
