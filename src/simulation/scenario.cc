#include "simulation/scenario.h"

#include <algorithm>
#include <array>

#include "base/format.h"
#include "simulation/sim_values.h"

namespace tkv::simulation {
namespace {

constexpr std::array<const char*, Fault::kKinds> kFaultNames = {
    "drop",       "duplicate", "delay", "slow",    "cut",   "kill",  "vanish",
    "killserver", "killhead",  "pause", "isolate", "haste", "refuse"};

// Seeds of separate random sequences for newer kinds of draws, so that the older draws of a seed
// stay the same.
constexpr uint64_t kValues = 0x76616C756573;
constexpr uint64_t kPolicyDraws = 0x706F6C696379;
constexpr uint64_t kReplacementDraws = 0x7265706C616365;
constexpr uint64_t kMemoryDraws = 0x6469736B73;
constexpr uint64_t kLifeDraws = 0x6C69766573;
constexpr uint64_t kRefusalDraws = 0x6D656D6F7279;
constexpr uint32_t kStores = 4;  // the first one is never closed

constexpr size_t kOtherRows = 400;  // more rows than one sweep of a version examines

std::vector<Fault::Kind> ParseFaults(const std::string& text) {
  std::vector<Fault::Kind> kinds;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    begin = end + 1;
    if (name == "all") {
      for (int i = 0; i < Fault::kKinds; ++i) kinds.push_back(static_cast<Fault::Kind>(i));
      continue;
    }
    const auto found = std::find(kFaultNames.begin(), kFaultNames.end(), name);
    if (found == kFaultNames.end()) {
      throw Fail(Code::kInvalidArgument, "no fault '{}'; there are all, {}", name,
                 Join(kFaultNames, ", "));
    }
    kinds.push_back(static_cast<Fault::Kind>(found - kFaultNames.begin()));
  }
  return kinds;
}

// Makes the key a sparse key.  If workers end, or the key is asynchronous, the model has to
// identify the pushes of a version in each bucket alone, so pushes have no gaps then.
void KeepByRows(Random* random, bool may_have_gaps, SimKey* key) {
  KeyMeta& meta = key->meta;
  meta.layout = Layout::kRows;
  meta.shape = random->Chance(0.5) ? Shape({1}) : Shape({2});
  meta.row_count = kRowIds + static_cast<uint64_t>(random->Between(0, 1)) * 1000;
  meta.initializer.a = static_cast<double>(random->Between(0, 5));
  meta.buckets = static_cast<uint32_t>(random->Between(1, 4));
  for (uint32_t c = 0; c < meta.buckets; ++c) {
    if (RowsOf(*key, c, kAllRows).empty()) meta.buckets = 1;
  }
  key->encodes = false;
  key->has_gaps = may_have_gaps && meta.mode == KeyMeta::Mode::kSync && random->Chance(0.7);
}

// Draws a policy for the rows of a sparse key.
//
// The model identifies the pushes of each version from its contents.  A synchronous key may drop or
// evict pushed rows: the model assumes as many pushes of the round as possible.  An asynchronous
// key has to keep pushed rows for a while, because the model has to recognise each push.
void DrawPolicy(Random* random, SimKey* key) {
  KeyMeta& meta = key->meta;
  RowPolicy& policy = meta.policy;
  policy.has_notes = random->Chance(0.5);
  if (random->Chance(0.6)) policy.age_max = static_cast<uint64_t>(random->Between(1, 4));
  if (meta.mode == KeyMeta::Mode::kSync) {
    if (random->Chance(0.5)) policy.admit_count = static_cast<uint32_t>(random->Between(2, 3));
    if (random->Chance(0.3)) {
      policy.rows_max = static_cast<uint64_t>(random->Between(1, 10));
      policy.score = static_cast<RowPolicy::Score>(random->Between(0, IsFloat(meta.dtype) ? 2 : 1));
    }
  }
  const bool has_ids = meta.row_count >= kRowIds + kOtherRows;
  // Expired rows stay in memory only if a table is larger than a sweep.
  if (has_ids && policy.age_max > 0 && policy.rows_max == 0 && random->Chance(0.5)) {
    key->other_rows = kOtherRows;
  }
}

// Bounds the memory to a few rows for each bucket; the other rows are on a disk.
void BoundMemory(Random* random, KeyMeta* meta) {
  if (meta->policy.rows_max > 0 && meta->policy.score == RowPolicy::Score::kNorm) return;
  const uint64_t rows = static_cast<uint64_t>(random->Between(1, 16)) * meta->buckets;
  meta->policy.memory_max = rows * static_cast<uint64_t>(meta->elements()) * sizeof(double);
}

SimKey MakeKey(Random* random, size_t index, bool halves) {
  constexpr std::array kDTypes = {DType::kF32, DType::kF32, DType::kF64, DType::kI64, DType::kI32,
                                  DType::kI8,  DType::kU8,  DType::kI16, DType::kF16, DType::kBF16};
  constexpr int64_t kHalves = 2;  // the last two dtypes, whose sums over rounds are not exact
  SimKey key;
  const std::string text = Format("w{}", index);
  const auto store =
      random->Chance(0.4) ? static_cast<uint32_t>(random->Between(1, kStores - 1)) : 0;
  key.name = CanonicalKey(
      store, random->Chance(0.5) ? KeyView(static_cast<int64_t>(index)) : KeyView(text));
  KeyMeta& meta = key.meta;
  meta.name = key.name;
  meta.dtype = kDTypes[static_cast<size_t>(
      random->Between(0, static_cast<int64_t>(kDTypes.size()) - 1 - (halves ? 0 : kHalves)))];
  meta.chunk_elements = 1024;
  int64_t elements = random->Between(1, 24);
  if (random->Chance(0.35)) elements = 1024 * random->Between(1, 3) + random->Between(0, 8);
  meta.shape = random->Chance(0.5) ? Shape({elements}) : Shape({1, elements});
  const double mode = static_cast<double>(random->Between(0, 99));
  if (mode < 15 && !halves) {
    meta.mode = KeyMeta::Mode::kAsync;
    // Elements are wide, so that the model recognises each push from the value alone.
    meta.dtype = random->Chance(0.5) ? DType::kI64 : DType::kF64;
  } else if (mode < 30) {
    meta.staleness = static_cast<uint32_t>(random->Between(1, 2));
  }
  meta.deterministic = random->Chance(0.2);
  key.accumulates = !halves;
  return key;
}

void MakeSteps(Random* random, size_t count, bool recreate, Scenario* scenario) {
  std::vector<uint64_t> ordinals(scenario->keys.size());
  uint64_t barriers = 0;
  while (scenario->steps.size() < count) {
    Step step;
    step.key =
        static_cast<size_t>(random->Between(0, static_cast<int64_t>(scenario->keys.size()) - 1));
    const int64_t choice = random->Between(0, 99);
    if (choice < 30) {
      step.kind = Step::Kind::kPush;
    } else if (choice < 55) {
      step.kind = Step::Kind::kPull;
    } else if (choice < 85) {
      step.kind = Step::Kind::kPushPull;
    } else if (choice < 88) {
      step.kind = Step::Kind::kWait;
    } else if (choice < 95) {
      step.kind = Step::Kind::kBarrier;
    } else if (choice < 98 || !recreate) {
      step.kind = Step::Kind::kControl;
      step.accumulate = scenario->keys[0].accumulates && random->Chance(0.6);
      step.store = StoreOf(scenario->keys[step.key].name);
    } else {
      step.kind = Step::Kind::kRecreate;
    }
    if (step.kind == Step::Kind::kPush || step.kind == Step::Kind::kPushPull) ++ordinals[step.key];
    step.ordinal = ordinals[step.key];
    if (step.kind == Step::Kind::kBarrier) step.ordinal = ++barriers;
    if (step.kind == Step::Kind::kRecreate) {
      ordinals[step.key] = 0;
      step.ordinal = barriers += 2;
    }
    scenario->steps.push_back(step);
  }
}

// Adds CONTROLs in unusual places: right after a push that may still wait for its round, and in a
// later incarnation that has not opened its keys yet.
void MakeEarlyControls(Random* random, Scenario* scenario) {
  const bool accumulates = scenario->keys[0].accumulates;
  scenario->has_hasty_controls = random->Chance(0.4);
  for (size_t i = 1; scenario->has_hasty_controls && i < scenario->steps.size(); ++i) {
    const Step& before = scenario->steps[i - 1];
    Step& step = scenario->steps[i];
    const bool only_reads = step.kind == Step::Kind::kPull || step.kind == Step::Kind::kWait;
    if (!only_reads || before.kind != Step::Kind::kPush || !random->Chance(0.3)) continue;
    step.kind = Step::Kind::kControl;
    step.accumulate = accumulates && random->Chance(0.5);
    step.store = StoreOf(scenario->keys[before.key].name);
  }
  if (!random->Chance(0.4)) return;
  scenario->control_before_init =
      static_cast<size_t>(random->Between(0, static_cast<int64_t>(scenario->keys.size()) - 1));
  scenario->early_accumulates = accumulates && random->Chance(0.7);
}

// Adds lost connections of an observer, also while it waits for an answer.
void MakeObserverDrops(Random* random, Scenario* scenario) {
  if (!scenario->observer || !random->Chance(0.6)) return;
  for (int64_t left = random->Between(1, 4); left > 0; --left) {
    Fault fault;
    fault.kind = Fault::Kind::kDrop;
    fault.at_event = static_cast<uint64_t>(random->Between(10, 600));
    fault.choice = random->Next();
    fault.of_observer = true;
    scenario->faults.push_back(fault);
  }
  std::stable_sort(scenario->faults.begin(), scenario->faults.end(),
                   [](const Fault& a, const Fault& b) { return a.at_event < b.at_event; });
}

// Lets all workers close one store other than the first at some step, and continue with the other
// stores.
void MakeClose(Random* random, uint32_t store, Scenario* scenario) {
  if (!random->Chance(0.4)) return;
  const auto at = random->Between(0, static_cast<int64_t>(scenario->steps.size()) - 1);
  const auto found =
      std::find_if(scenario->steps.begin() + at, scenario->steps.end(), [](const Step& step) {
        return step.kind == Step::Kind::kPull || step.kind == Step::Kind::kWait;
      });
  if (found == scenario->steps.end()) return;
  found->kind = Step::Kind::kClose;
  found->store = store;
}

// Draws whether a launcher restarts workers.  If so, all of them may die at once.
void MakeLives(Random* random, Scenario* scenario) {
  scenario->lives_return = random->Chance(0.5);
  for (Fault& fault : scenario->faults) {
    const bool ends = fault.kind == Fault::Kind::kKill || fault.kind == Fault::Kind::kVanish;
    fault.of_all = ends && fault.restarts && scenario->lives_return && random->Chance(0.4);
  }
}

// Replaces some pulls and waits by saves of worker 0.
void MakeSaves(Random* random, Scenario* scenario) {
  if (!random->Chance(0.5)) return;
  for (Step& step : scenario->steps) {
    const bool only_reads = step.kind == Step::Kind::kPull || step.kind == Step::Kind::kWait;
    if (only_reads && random->Chance(0.2)) step.kind = Step::Kind::kSave;
  }
}

void MakeFaults(Random* random, const std::vector<Fault::Kind>& kinds, Scenario* scenario) {
  const auto allowed = [&](Fault::Kind kind) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  };
  std::vector<Fault::Kind> light;
  for (const auto kind : {Fault::Kind::kDrop, Fault::Kind::kDuplicate, Fault::Kind::kDelay,
                          Fault::Kind::kSlow, Fault::Kind::kCut}) {
    if (allowed(kind)) light.push_back(kind);
  }
  std::vector<Fault::Kind> heavy;
  for (const auto kind : {Fault::Kind::kKill, Fault::Kind::kVanish, Fault::Kind::kPause,
                          Fault::Kind::kIsolate, Fault::Kind::kHaste}) {
    if (allowed(kind)) heavy.push_back(kind);
  }
  const auto add = [&](Fault::Kind kind, int64_t from, int64_t to) {
    Fault fault;
    fault.kind = kind;
    fault.at_event = static_cast<uint64_t>(random->Between(from, to));
    fault.choice = random->Next();
    fault.restarts = random->Chance(0.7);
    scenario->faults.push_back(fault);
  };
  const int64_t light_count = light.empty() ? 0 : random->Between(5, 9);
  for (int64_t i = 0; i < light_count; ++i) {
    add(light[static_cast<size_t>(random->Between(0, static_cast<int64_t>(light.size()) - 1))], 10,
        900);
  }
  if (!heavy.empty() && random->Chance(0.5)) {
    const int64_t heavy_count = random->Between(1, 2);
    for (int64_t i = 0; i < heavy_count; ++i) {
      add(heavy[static_cast<size_t>(random->Between(0, static_cast<int64_t>(heavy.size()) - 1))],
          60, 900);
    }
  }
  if (allowed(Fault::Kind::kKillServer) && random->Chance(0.07)) {
    add(Fault::Kind::kKillServer, 100, 900);
  }
  if (allowed(Fault::Kind::kKillHead) && random->Chance(0.05)) {
    add(Fault::Kind::kKillHead, 200, 900);
  }
  std::sort(scenario->faults.begin(), scenario->faults.end(),
            [](const Fault& a, const Fault& b) { return a.at_event < b.at_event; });
}

// Adds servers that have no memory for a while.  In half of such scenarios nobody ends, so that
// each push has to count in the end.
void MakeRefusals(Random* random, Scenario* scenario) {
  if (!random->Chance(0.25)) return;
  if (random->Chance(0.5)) {
    std::erase_if(scenario->faults,
                  [](const Fault& fault) { return fault.kind >= Fault::Kind::kKill; });
  }
  for (int64_t left = random->Between(1, 4); left > 0; --left) {
    Fault fault;
    fault.kind = Fault::Kind::kRefuse;
    fault.at_event = static_cast<uint64_t>(random->Between(60, 900));
    fault.choice = random->Next();
    scenario->faults.push_back(fault);
  }
  std::ranges::stable_sort(scenario->faults, {}, &Fault::at_event);
}

constexpr int kProcessesMax = 64;  // processes of a kind, because all of them run in one thread
constexpr int kStepsMax = 1'000'000;

}  // namespace

const char* Name(Fault::Kind kind) { return kFaultNames[static_cast<size_t>(kind)]; }

Scenario MakeScenario(const testing::SimulationOptions& options) {
  const auto is_within = [](int value, int high) { return value >= 0 && value <= high; };
  const bool is_good = is_within(options.workers, kProcessesMax) &&
                       is_within(options.servers, kProcessesMax) &&
                       is_within(options.steps, kStepsMax);
  if (!is_good) {
    throw Fail(Code::kInvalidArgument,
               "simulate: {} workers, {} servers, {} steps; from 0 to {}, {} and {} are possible",
               options.workers, options.servers, options.steps, kProcessesMax, kProcessesMax,
               kStepsMax);
  }
  Random random(options.seed);
  Scenario scenario;
  scenario.seed = options.seed;
  scenario.workers = static_cast<int>(random.Between(2, 5));
  scenario.servers = static_cast<int>(random.Between(1, 4));
  if (options.workers > 0) scenario.workers = options.workers;
  if (options.servers > 0) scenario.servers = options.servers;
  scenario.policy = static_cast<Epoch::Policy>(random.Between(0, 2));
  scenario.observer = random.Chance(0.3);
  scenario.adopt_from_bytes = random.Chance(0.5) ? 1 : size_t{64} << 10;
  scenario.credit_bytes = random.Chance(0.3) ? 2048 : size_t{1} << 20;
  scenario.pull_bytes_max = random.Chance(0.3) ? 1024 : size_t{1} << 20;
  scenario.outstanding = static_cast<int>(random.Between(1, 4));
  scenario.has_priorities = options.seed / 2 % 2 != 0;
  scenario.tells_slowly = options.seed / 4 % 4 == 3;
  const int64_t key_count = random.Between(2, 5);
  const bool halves = random.Chance(0.25);
  for (int64_t i = 0; i < key_count; ++i) {
    scenario.keys.push_back(MakeKey(&random, static_cast<size_t>(i), halves));
  }
  size_t count =
      200 / static_cast<size_t>(scenario.workers) + static_cast<size_t>(random.Between(1, 20));
  if (options.steps > 0) count = static_cast<size_t>(options.steps);
  const std::vector<Fault::Kind> kinds = ParseFaults(options.faults);
  MakeFaults(&random, kinds, &scenario);
  const bool heavy =
      std::any_of(scenario.faults.begin(), scenario.faults.end(),
                  [](const Fault& fault) { return fault.kind >= Fault::Kind::kKill; });
  const bool leavers = random.Chance(0.3);
  MakeSteps(&random, count, !heavy && !leavers, &scenario);
  Random values(options.seed ^ kValues);
  MakeEarlyControls(&values, &scenario);
  for (uint32_t store = 1; store < kStores; ++store) MakeClose(&values, store, &scenario);
  if (std::find(kinds.begin(), kinds.end(), Fault::Kind::kDrop) != kinds.end()) {
    MakeObserverDrops(&values, &scenario);
  }
  scenario.deletes_twice = values.Chance(0.5);
  MakeSaves(&values, &scenario);
  Random lives(options.seed ^ kLifeDraws);
  MakeLives(&lives, &scenario);
  if (std::find(kinds.begin(), kinds.end(), Fault::Kind::kRefuse) != kinds.end()) {
    Random refusals(options.seed ^ kRefusalDraws);
    MakeRefusals(&refusals, &scenario);
  }
  Random encodings(options.seed ^ kEncodings);
  const bool encodes = encodings.Chance(0.5);
  for (SimKey& key : scenario.keys) key.encodes = encodes && encodings.Chance(0.7);
  Random rows(options.seed ^ kRowDraws);
  const bool has_rows = rows.Chance(0.4);
  for (SimKey& key : scenario.keys) {
    if (has_rows && rows.Chance(0.6)) KeepByRows(&rows, !heavy, &key);
  }
  Random policies(options.seed ^ kPolicyDraws);
  for (SimKey& key : scenario.keys) {
    if (key.meta.by_rows() && policies.Chance(0.6)) DrawPolicy(&policies, &key);
  }
  Random replacements(options.seed ^ kReplacementDraws);
  for (SimKey& key : scenario.keys) {
    RowPolicy& policy = key.meta.policy;
    const bool may_replace = key.meta.by_rows() && policy.admit_count == 1;
    policy.replaces_all = may_replace && replacements.Chance(0.3);
  }
  Random memories(options.seed ^ kMemoryDraws);
  for (SimKey& key : scenario.keys) {
    if (key.meta.by_rows() && memories.Chance(0.4)) BoundMemory(&memories, &key.meta);
  }
  for (int rank = 0; rank < scenario.workers; ++rank) {
    size_t steps = count;
    if (leavers && rank > 0 && random.Chance(0.4)) {
      steps = static_cast<size_t>(random.Between(1, static_cast<int64_t>(count)));
    }
    scenario.step_counts.push_back(steps);
  }
  return scenario;
}

}  // namespace tkv::simulation

namespace tkv::testing {

std::span<const char* const> FaultNames() noexcept { return simulation::kFaultNames; }

}  // namespace tkv::testing
