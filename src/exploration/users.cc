// Runs the users of a world: their programs, and the outcomes that they receive.

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "exploration/rows.h"
#include "exploration/world.h"
#include "tkv/optimizer.h"

namespace tkv::exploration {
namespace {

Bytes ValueWith(const Counts& counts) {
  const auto values = std::make_shared<std::vector<float>>(kElements, 0.0F);
  for (size_t i = 0; i < kPushes; ++i) {
    (*values)[i] = (*values)[kChunkElements + i] = static_cast<float>(counts[i]);
  }
  return {reinterpret_cast<const std::byte*>(values->data()), kElements * sizeof(float), values};
}

// Returns the value of a push.  All values are made once and never change.
const Bytes& ValueOf(size_t push) {
  static const std::vector<Bytes> values = [] {
    std::vector<Bytes> all;
    for (size_t i = 0; i < kPushes; ++i) {
      Counts counts{};
      counts[i] = 1;
      all.push_back(ValueWith(counts));
    }
    return all;
  }();
  return values[push];
}

KeyMeta DenseMeta() {
  KeyMeta meta;
  meta.name = KeyName();
  meta.dtype = DType::kF32;
  meta.shape = Shape({static_cast<int64_t>(kElements)});
  meta.chunk_elements = kChunkElements;
  return meta;
}

const UpdateSpec& AddingSpec() {  // value += sum
  static const UpdateSpec spec = [] {
    UpdateSpec adds;
    adds.program = Optimizer::Create("test")->program().ToText();
    adds.params = {1.0};
    return adds;
  }();
  return spec;
}

Operation::Init InitOf(const Scope& scope) {
  KeyMeta meta = scope.by_rows ? RowsMeta(scope) : DenseMeta();
  meta.staleness = scope.staleness;
  Operation::Init init{std::make_shared<const KeyMeta>(std::move(meta)), {}};
  if (scope.by_rows) {
    init.value = NoRows();
  } else {
    init.value.bytes = ValueWith({});
  }
  return init;
}

}  // namespace

void World::RunUser(int index) {
  do {
    Actor* const actor = Edit(index);
    auto& node = static_cast<ClientNode&>(*actor->node);
    for (const Outcome& outcome : node.TakeOutcomes()) OnOutcome(index, outcome);
    if (node.member().refused() && actor->user.op == kNoOp) actor->user.over = true;
    Dispatch(index);
  } while (BeginNext(index));
}

// Begins the next operation of the program.  Returns false if none can begin now.
bool World::BeginNext(int index) {
  Actor* const actor = Edit(index);
  User& user = actor->user;
  const auto& node = static_cast<const ClientNode&>(*actor->node);
  if (user.over || user.op != kNoOp || !node.joined()) return false;
  const bool is_observer = actor->kind == Kind::kObserver;
  const std::string& program = actor->index == 0 ? scope_->program : scope_->second_program;
  const bool explores_init = !program.empty() && program[0] == 'I';
  if (!user.opened) {
    if (held_ && explores_init) return false;
    Begin(index, is_observer ? 'O' : 'I');
    return true;
  }
  if (user.next == 0 && !user.warm && !explores_init && user.life == 0) {
    user.warm = true;  // this pull connects the client to every server
    Begin(index, 'L');
    return true;
  }
  if (held_) return false;
  if (is_observer) {
    if (static_cast<int>(user.next) == scope_->reader_pulls) {
      user.over = true;
      return false;
    }
    ++user.next;
    Begin(index, 'L');
    return true;
  }
  if (user.next == 0 && user.life > 0) user.base = node.client().RoundOf(KeyName());
  while (user.next < program.size()) {
    const char verb = program[user.next++];
    if (verb == 'I') continue;  // the init is done
    if (verb == 'P' || verb == 'X') {
      ++user.ordinal;
      // An earlier incarnation has pushed it.
      if (static_cast<uint64_t>(user.ordinal) <= user.base) continue;
    }
    if (verb == 'C' && (!node.client().IsSender() || user.life > 0)) continue;
    Begin(index, verb);
    return true;
  }
  user.over = true;
  return false;
}

codec::Contribution World::PushedValue(const Actor& actor) const {
  const size_t push = PushId(actor.index, actor.user.life, actor.user.ordinal);
  if (scope_->by_rows) return RowsOfPush(push, scope_->admit_count > 1);
  codec::Contribution value;
  value.bytes = ValueOf(push);
  return value;
}

void World::Begin(int index, char verb) {
  Actor* const actor = Edit(index);
  User& user = actor->user;
  user.verb = verb;
  user.accepted = false;
  Operation operation;
  operation.verb = std::string(1, verb);
  operation.key = KeyName();
  Operation::Push push;
  Operation::Pull pull;
  if (verb == 'P' || verb == 'X') push.value = PushedValue(*actor);
  if (verb == 'L' || verb == 'X') {
    std::memset(actor->scratch.data, 0xFF, actor->scratch.size);
    pull.out = actor->scratch;
    if (scope_->by_rows) {
      pull.out.size = PulledRows() * sizeof(float);
      pull.ids = AllIds();
    }
  }
  switch (verb) {
    case 'P':
      operation.request = std::move(push);
      break;
    case 'L':
      operation.request = std::move(pull);
      break;
    case 'X':
      operation.request = Operation::PushPull{std::move(push), std::move(pull)};
      break;
    case 'B':
      operation.request = Operation::Barrier{};
      ++user.barriers;
      break;
    case 'C':
      operation.request = Operation::Control{AddingSpec()};
      operation.key.clear();
      step_is_local_ = false;
      control_from_[static_cast<size_t>(actor->index)] =
          static_cast<const ClientNode&>(*actor->node).client().RoundOf(KeyName()) + 1;
      break;
    case 'O':
      operation.request = Operation::Open{};
      break;
    default:
      operation.request = InitOf(*scope_);
  }
  auto& node = static_cast<ClientNode&>(*actor->node);
  user.op = node.client().next_op();
  node.Begin(std::move(operation), actor->clock);
  Dispatch(index);
}

void World::OnOutcome(int index, const Outcome& outcome) {
  Actor* const actor = Edit(index);
  User& user = actor->user;
  if (outcome.op != user.op) return Violate(NameOf(index) + ": an operation has ended twice");
  const bool pushes = user.verb == 'P' || user.verb == 'X';
  if (outcome.event == Outcome::Event::kAccepted) {
    if (user.accepted) Violate(NameOf(index) + ": a push was accepted twice");
    user.accepted = true;
    if (!pushes) return;
    return CheckAccepted(*actor, PushId(actor->index, user.life, user.ordinal), outcome.round);
  }
  if (outcome.event == Outcome::Event::kFailed) {
    user.over = true;
    CheckFailure(*actor, *outcome.error);
  } else {
    if (pushes && !user.accepted) Violate(NameOf(index) + ": done, and never accepted");
    if (user.verb == 'L' || user.verb == 'X') CheckPull(*actor, outcome.round);
    if (user.verb == 'B') CheckBarrier(*actor);
    if (user.verb == 'I' || user.verb == 'O') user.opened = true;
    if (user.verb == 'C') {
      step_is_local_ = false;
      control_done_[static_cast<size_t>(actor->index)] = 1;
    }
  }
  user.op = kNoOp;
  user.verb = 0;
}

}  // namespace tkv::exploration
