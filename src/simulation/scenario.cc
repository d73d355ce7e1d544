#include "simulation/scenario.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/format.h"
#include "base/mix.h"
#include "codec/compress.h"
#include "codec/rows.h"
#include "kernels/encode.h"
#include "kernels/half.h"

namespace tkv::simulation {
namespace {

constexpr std::array<const char*, Fault::kKinds> kFaultNames = {
    "drop",       "duplicate", "delay", "slow",    "cut",   "kill",  "vanish",
    "killserver", "killhead",  "pause", "isolate", "haste", "refuse"};

// Seeds of separate random sequences for newer kinds of draws, so that the older draws of a seed
// stay the same.
constexpr uint64_t kValues = 0x76616C756573;
constexpr uint64_t kEncodings = 0x656E636F6465;
constexpr uint64_t kRowDraws = 0x726F7773;
constexpr uint64_t kPolicyDraws = 0x706F6C696379;
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

int64_t Wrap(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::kI8:
      return static_cast<int8_t>(value);
    case DType::kU8:
      return static_cast<uint8_t>(value);
    case DType::kI16:
      return static_cast<int16_t>(value);
    case DType::kI32:
      return static_cast<int32_t>(value);
    default:
      return value;
  }
}

void Store(DType dtype, int64_t value, std::byte* target) {
  const auto put = [&](auto element) { std::memcpy(target, &element, sizeof(element)); };
  switch (dtype) {
    case DType::kF32:
      return put(static_cast<float>(value));
    case DType::kF64:
      return put(static_cast<double>(value));
    case DType::kF16:
      return put(kernels::F16FromF32(static_cast<float>(value)));
    case DType::kBF16:
      return put(kernels::BF16FromF32(static_cast<float>(value)));
    case DType::kI8:
      return put(static_cast<int8_t>(value));
    case DType::kU8:
      return put(static_cast<uint8_t>(value));
    case DType::kI16:
      return put(static_cast<int16_t>(value));
    case DType::kI32:
      return put(static_cast<int32_t>(value));
    default:
      return put(value);
  }
}

int64_t Load(DType dtype, const std::byte* source) {
  const auto get = [&](auto element) {
    std::memcpy(&element, source, sizeof(element));
    return element;
  };
  switch (dtype) {
    case DType::kF32:
      return static_cast<int64_t>(get(float{}));
    case DType::kF64:
      return static_cast<int64_t>(get(double{}));
    case DType::kF16:
      return static_cast<int64_t>(kernels::F32FromF16(get(uint16_t{})));
    case DType::kBF16:
      return static_cast<int64_t>(kernels::F32FromBF16(get(uint16_t{})));
    case DType::kI8:
      return get(int8_t{});
    case DType::kU8:
      return get(uint8_t{});
    case DType::kI16:
      return get(int16_t{});
    case DType::kI32:
      return get(int32_t{});
    default:
      return get(int64_t{});
  }
}

namespace {

uint64_t MaskOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 0xFF;
    case DType::kBF16:
      return 0x1F;
    case DType::kF32:
      return 0x7FF;
    case DType::kF64:
      return 0xFFFF'FFFF;
    case DType::kI8:
    case DType::kU8:
      return 0x7F;
    case DType::kI16:
      return 0x7FFF;
    case DType::kI32:
      return 0x7FFF'FFFF;
    default:
      return 0x7FFF'FFFF'FFFF'FFFF;
  }
}

}  // namespace

namespace {

uint64_t BaseOf(uint64_t seed, const SimKey& key, Rank rank, uint64_t incarnation, uint64_t round) {
  return Random::Mix(seed ^ IdOf(key.name).low) ^ (static_cast<uint64_t>(rank) << 48) ^
         (incarnation << 32) ^ round;
}

Lanes DrawnLanes(uint64_t base, DType dtype) {
  Lanes lanes;
  for (size_t i = 0; i < lanes.size(); ++i) {
    lanes[i] = static_cast<int64_t>(Random::Mix(base ^ (i << 60)) & MaskOf(dtype));
  }
  return lanes;
}

struct SimCoding {
  Encoding encoding = Encoding::kDense;
  int64_t threshold = 0;
  // For dense values, runs and rows: the key's dtype, or float32 as for a sum of 16-bit values.
  DType values{};

  bool is_wide(const SimKey& key) const { return values != key.meta.dtype; }
};

// Draws the encoding of a push.  Sums of bf16 keys are exact only below 256, so they use no int8.
// With fewer elements than lanes, some encodings could not distinguish pushes.
SimCoding CodingOf(uint64_t base, const SimKey& key) {
  SimCoding coding{.values = key.meta.dtype};
  const bool has_choice = key.encodes || key.meta.by_rows();
  if (!has_choice || ComputeType(key.meta.dtype) != DType::kF32) return coding;
  constexpr std::array kAll = {Encoding::kDense, Encoding::kF16,  Encoding::kBf16, Encoding::k2Bit,
                               Encoding::k1Bit,  Encoding::kTopK, Encoding::kRuns, Encoding::kInt8};
  size_t count = kAll.size() - (key.meta.dtype == DType::kBF16 ? 1 : 0);
  if (key.meta.elements() < kLanes) count = 2;
  const uint64_t drawn = Random::Mix(base ^ kEncodings);
  if ((drawn >> 40 & 1) != 0) coding.values = DType::kF32;
  if (key.meta.by_rows()) return coding;
  coding.encoding = kAll[drawn % count];
  if (coding.encoding == Encoding::k2Bit) {
    coding.threshold = static_cast<int64_t>(drawn >> 32 & 0xF) + 1;
  }
  return coding;
}

// Returns lane i of a push as the encoding can represent it exactly.  The first 256 pushes all
// differ.
int64_t Exactly(const SimCoding& coding, size_t i, uint64_t push, int64_t lane) {
  const bool bit = (push >> i & 1) != 0;
  switch (coding.encoding) {
    case Encoding::kBf16:
      return lane & 0xFF;
    case Encoding::k2Bit:
      return bit ? coding.threshold : i % 2 == 0 ? 0 : -coding.threshold;
    case Encoding::k1Bit:
      return bit ? 1 : -1;
    case Encoding::kTopK:
    case Encoding::kRuns:
      return i == 0 ? static_cast<int64_t>(push % 31) + 1 : lane % 3 == 0 ? 0 : lane;
    case Encoding::kInt8:  // with scale 1
      return i == 0 ? 127 : i == 1 ? static_cast<int64_t>(push % 255) - 127 : lane % 255 - 127;
    default:
      return lane;
  }
}

// Encodes the non-zero elements of each chunk as runs.
void EncodeRuns(const KeyMeta& meta, DType type, const std::vector<float>& values,
                std::vector<std::byte>* out, codec::Contribution* contribution) {
  const size_t item = ItemSize(type);
  size_t begin = 0;
  for (uint32_t c = 0; c < meta.chunk_count(); ++c) {
    const auto elements = static_cast<uint32_t>(meta.elements_of(c));
    std::vector<codec::Run> runs;
    size_t total = 0;
    for (uint32_t i = 0; i < elements; ++i) {
      if (values[begin + i] == 0) continue;
      if (runs.empty() || runs.back().begin + runs.back().length != i) runs.push_back({i, 0});
      ++runs.back().length;
      ++total;
    }
    const size_t at = out->size();
    out->resize(at + codec::RunHeadBytes(runs.size()) + total * item);
    std::byte* target = codec::WriteRunHeads(runs, out->data() + at);
    for (uint32_t i = 0; i < elements; ++i) {
      if (values[begin + i] == 0) continue;
      Store(type, static_cast<int64_t>(values[begin + i]), target);
      target += item;
    }
    contribution->ends.push_back(out->size());
    begin += elements;
  }
}

// Encodes the non-zero elements of each chunk as positions and values.
void EncodeChosen(const KeyMeta& meta, const std::vector<float>& values,
                  std::vector<std::byte>* out, codec::Contribution* contribution) {
  size_t begin = 0;
  for (uint32_t c = 0; c < meta.chunk_count(); ++c) {
    const auto elements = static_cast<size_t>(meta.elements_of(c));
    std::vector<float> rest(values.begin() + static_cast<ptrdiff_t>(begin),
                            values.begin() + static_cast<ptrdiff_t>(begin + elements));
    const size_t at = out->size();
    out->resize(at + elements * 8);
    const size_t taken = codec::TakeLargest(rest.data(), elements, elements, out->data() + at);
    out->resize(at + taken * 8);
    contribution->ends.push_back(out->size());
    begin += elements;
  }
}

}  // namespace

Lanes Contribution(uint64_t seed, const SimKey& key, Rank rank, uint64_t incarnation,
                   uint64_t round) {
  const uint64_t base = BaseOf(seed, key, rank, incarnation, round);
  const SimCoding coding = CodingOf(base, key);
  Lanes lanes = DrawnLanes(base, key.meta.dtype);
  for (size_t i = 0; i < lanes.size(); ++i) lanes[i] = Exactly(coding, i, round, lanes[i]);
  return lanes;
}

RowSet InitialRows(uint64_t seed, const SimKey& key) {
  return Random::Mix(BaseOf(~seed, key, 0, 0, 1)) & kAllRows;
}

Lanes InitialValue(uint64_t seed, const SimKey& key) {
  Lanes lanes = DrawnLanes(BaseOf(~seed, key, 0, 0, 0), key.meta.dtype);
  if (!key.meta.by_rows()) return lanes;
  const RowSet there = InitialRows(seed, key);
  for (size_t i = 0; i < kRowIds; ++i) {
    if ((there >> i & 1) == 0) lanes[i] = static_cast<int64_t>(key.meta.initializer.a);
  }
  return lanes;
}

std::vector<uint64_t> RowsOf(const SimKey& key, uint32_t chunk, RowSet rows) {
  std::vector<uint64_t> ids;
  for (uint64_t id = 0; id < kRowIds; ++id) {
    const bool is_its = BucketOf(Mix(id), key.meta.buckets) == chunk;
    if (is_its && (rows >> id & 1) != 0) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end(), [](uint64_t a, uint64_t b) { return Mix(a) < Mix(b); });
  return ids;
}

// Without gaps, a push has at least one row in every bucket, so that the model can identify it
// there.
RowSet Touched(uint64_t seed, const SimKey& key, Rank rank, uint64_t incarnation, uint64_t round) {
  if (!key.meta.by_rows()) return kAllRows;
  const uint64_t drawn = Random::Mix(BaseOf(seed, key, rank, incarnation, round) ^ kRowDraws);
  auto rows = static_cast<RowSet>(drawn & drawn >> 12 & kAllRows);
  for (uint32_t c = 0; c < key.meta.buckets && !key.has_gaps; ++c) {
    const std::vector<uint64_t> ids = RowsOf(key, c, kAllRows);
    rows = static_cast<RowSet>(rows | 1U << ids[(drawn >> 32) % ids.size()]);
  }
  return rows;
}

namespace {

std::vector<int64_t> IdsOf(RowSet rows) {
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < static_cast<int64_t>(kRowIds); ++id) {
    if ((rows >> id & 1) != 0) ids.push_back(id);
  }
  return ids;
}

// Writes rows with the values of the lanes.  The other rows may have any value, because no worker
// reads them.
void FillRows(const SimKey& key, DType type, const Lanes& lanes, RowSet rows,
              codec::Contribution* made, size_t other_rows = 0) {
  std::vector<int64_t> ids = IdsOf(rows);
  for (size_t i = 0; i < other_rows; ++i) ids.push_back(static_cast<int64_t>(kRowIds + i));
  const codec::IdOrder order(ids);
  const size_t item = ItemSize(type);
  const size_t row_bytes = key.meta.elements() * item;
  auto bytes =
      std::make_shared<std::vector<std::byte>>(codec::RowsBytes(order.mixes(), row_bytes) + 8);
  codec::WriteRows(
      order.mixes(), key.meta.buckets, row_bytes, {bytes->data(), bytes->size() - 8, bytes},
      [&](size_t i, std::byte* at) {
        for (size_t e = 0; e < row_bytes; e += item) {
          Store(type, lanes[Unmix(order.mixes()[i]) % kRowIds], at + e);
        }
      },
      made, type == key.meta.dtype ? 0 : codec::kWideValues);
}

Bytes FillWith(const SimKey& key, DType type, const Lanes& lanes) {
  const size_t item = ItemSize(type);
  const size_t count = key.meta.elements();
  auto bytes = std::make_shared<std::vector<std::byte>>(count * item + 8);
  for (size_t i = 0; i < std::min(count, kLanes); ++i) {
    Store(type, lanes[i], bytes->data() + i * item);
  }
  for (size_t i = kLanes; i < count; i += kLanes) {  // repeats the first eight
    std::memcpy(bytes->data() + i * item, bytes->data(), std::min(kLanes, count - i) * item);
  }
  return {bytes->data(), count * item, bytes};
}

}  // namespace

codec::Contribution Initial(uint64_t seed, const SimKey& key) {
  const Lanes lanes = InitialValue(seed, key);
  codec::Contribution value;
  if (key.meta.by_rows()) {
    FillRows(key, key.meta.dtype, lanes, InitialRows(seed, key), &value, key.other_rows);
  } else {
    value.bytes = FillWith(key, key.meta.dtype, lanes);
  }
  return value;
}

codec::Contribution AskFor(const SimKey& key, RowSet rows) {
  codec::Contribution asked;
  if (!key.meta.by_rows()) return asked;
  const codec::IdOrder order(IdsOf(rows));
  auto bytes = std::make_shared<std::vector<std::byte>>(order.size() * 8 + 8);
  codec::WriteIds(order.mixes(), key.meta.buckets, {bytes->data(), bytes->size() - 8, bytes},
                  &asked);
  return asked;
}

size_t PulledBytes(const SimKey& key, uint32_t chunk, RowSet rows) {
  if (!key.meta.by_rows()) return key.meta.bytes_of(chunk);
  return RowsOf(key, chunk, rows).size() * key.meta.row_bytes();
}

size_t PulledBytes(const SimKey& key, RowSet rows) {
  size_t bytes = 0;
  for (uint32_t c = 0; c < key.meta.chunk_count(); ++c) bytes += PulledBytes(key, c, rows);
  return bytes;
}

codec::Contribution Encoded(uint64_t seed, const SimKey& key, Rank rank, uint64_t incarnation,
                            uint64_t round) {
  const Lanes lanes = Contribution(seed, key, rank, incarnation, round);
  const SimCoding coding = CodingOf(BaseOf(seed, key, rank, incarnation, round), key);
  codec::Contribution contribution;
  if (key.meta.by_rows()) {
    FillRows(key, coding.values, lanes, Touched(seed, key, rank, incarnation, round),
             &contribution);
    return contribution;
  }
  contribution.encoding = coding.encoding;
  if (coding.encoding == Encoding::kDense) {
    contribution.bytes = FillWith(key, coding.values, lanes);
    if (coding.is_wide(key)) contribution.encoding = Encoding::kF32;
    return contribution;
  }
  const auto count = static_cast<size_t>(key.meta.elements());
  std::vector<float> values(count), residual(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(lanes[i % kLanes]);
  auto bytes = std::make_shared<std::vector<std::byte>>();
  if (coding.encoding == Encoding::kTopK) {
    EncodeChosen(key.meta, values, bytes.get(), &contribution);
  } else if (coding.encoding == Encoding::kRuns) {
    EncodeRuns(key.meta, coding.values, values, bytes.get(), &contribution);
    if (coding.is_wide(key)) contribution.param = codec::kWideValues;
  } else {
    const auto threshold = static_cast<float>(coding.threshold);
    bytes->resize(kernels::EncodedBytes(coding.encoding, count));
    kernels::Encode({coding.encoding, threshold}, values.data(), residual.data(), bytes->data(),
                    count);
    contribution.param = std::bit_cast<uint32_t>(threshold);
  }
  TKV_CHECK(std::all_of(residual.begin(), residual.end(), [](float rest) { return rest == 0; }));
  const size_t size = bytes->size();
  bytes->resize(size + 8);  // has an owner even if it has no bytes
  contribution.bytes = {bytes->data(), size, bytes};
  return contribution;
}

}  // namespace tkv::simulation

namespace tkv::testing {

std::span<const char* const> FaultNames() noexcept { return simulation::kFaultNames; }

}  // namespace tkv::testing
