#include "tests/shard_fixture.h"

#include "tkv/optimizer.h"

namespace tkv {
namespace {

using test::kLink0;
using test::kLink1;

class SnapshotTest : public test::ShardTest {
 protected:
  // Completes a round with pushes of both workers.
  void Round(uint64_t round, float sum) {
    Send(kLink0, Push(100 + round, round, sum - 1));
    Send(kLink1, Push(100 + round, round, 1));
  }
  Message CutAt(uint64_t seq, uint64_t version) {
    Message cut = Make(Type::kPull, seq, version);
    cut.flags = kNoBody | kCut;
    return cut;
  }
  Message Read(uint64_t seq, uint64_t part, uint64_t version = 1) {
    Message read = Make(Type::kPull, seq, part);
    read.need = version;
    read.flags = kOfCut;
    return read;
  }
  Message Control(uint64_t seq, const char* optimizer) {
    Message control = Make(Type::kControl, seq, seq);
    control.extra = Encode(SpecOf(optimizer));
    return control;
  }
  static UpdateSpec SpecOf(const char* optimizer) {
    const auto made = Optimizer::Create(optimizer);
    UpdateSpec spec;
    spec.program = made->program().ToText();
    spec.params = made->ParamsFor(KeyView(0));
    return spec;
  }
  static float First(const Message& value) {
    return *reinterpret_cast<const float*>(value.body.data);
  }
  Message Restore(uint64_t seq, const ChunkState& state, std::vector<float> parts) {
    Message restore = Make(Type::kRestore, seq);
    restore.extra = Encode(state);
    restore.body = Floats(std::move(parts));
    return restore;
  }
};

TEST_F(SnapshotTest, ACutWaitsForItsVersionAndKeepsIt) {
  Send(kLink0, Push(2, 1, 1));
  EXPECT_EQ(Send(kLink0, CutAt(3, 1)).type, Type{});
  Send(kLink1, Push(1, 1, 2));
  const Message cut = LastFor(kLink0);
  EXPECT_EQ(cut.type, Type::kValue);
  EXPECT_EQ(cut.number, 1U);
  EXPECT_EQ(cut.body.size, 0U);
  Round(2, 50);
  const Message value = Send(kLink0, Read(4, ChunkState::kValue));
  EXPECT_EQ(value.number, 1U);
  EXPECT_EQ(First(value), 3.0F);
  EXPECT_EQ(Value(), 50.0F);
}

TEST_F(SnapshotTest, ACutHasTheStateOfItsVersion) {
  Send(kLink0, Control(2, "sgd"));
  ASSERT_EQ(Send(kLink0, Control(3, "adam")).type, Type::kOk);
  Round(1, 5);
  const Message cut = Send(kLink0, CutAt(4, 1));
  const ChunkState state = DecodeChunkState(cut.extra);
  EXPECT_EQ(state.updates, 1U);
  EXPECT_EQ(state.arrays, 2);
  EXPECT_EQ(state.spec, SpecOf("adam"));
  const Message first = Send(kLink0, Read(5, ChunkState::kStates));
  ASSERT_EQ(first.body.size, 16U);
  const float mean = First(first);
  EXPECT_NEAR(mean, 0.5F, 1e-6);
  Round(2, 5);
  EXPECT_EQ(First(Send(kLink0, Read(6, ChunkState::kStates))), mean) << "later rounds leave it";
  ExpectError(kLink0, Read(7, ChunkState::kMaster), Code::kInvalidArgument);
  ExpectError(kLink0, Read(8, ChunkState::kStates + 2), Code::kInvalidArgument);
  ExpectError(kLink0, Read(9, UINT64_MAX), Code::kInvalidArgument);
}

// A store that restores the cut has the rule of the next round, which cannot use the former states.
TEST_F(SnapshotTest, ACutLacksTheStatesThatARuleForTheNextRoundHasEnded) {
  Send(kLink0, Control(2, "adam"));
  Round(1, 5);
  Message momentum = Control(3, "sgd");
  const ControlRounds::Item from{key_, 2};
  momentum.body = {reinterpret_cast<const std::byte*>(&from), sizeof(from), nullptr};
  ASSERT_EQ(Send(kLink0, momentum).type, Type::kOk);
  const ChunkState state = DecodeChunkState(Send(kLink0, CutAt(4, 1)).extra);
  EXPECT_EQ(state.updates, 0U);
  EXPECT_EQ(state.arrays, 0);
  EXPECT_EQ(state.spec, SpecOf("sgd"));
  EXPECT_EQ(chunk().updates, 1U) << "the chunk itself goes on as it was";
}

TEST_F(SnapshotTest, WhatIsReleasedIsFreedAndCannotBeRead) {
  Round(1, 5);
  Send(kLink0, CutAt(3, 1));
  Round(2, 6);
  EXPECT_EQ(shard_.MemoryUse().cuts, 16U);
  Message release = Make(Type::kRelease, 4);
  release.chunk = 1;
  Send(kLink0, release);
  EXPECT_EQ(shard_.MemoryUse().cuts, 16U) << "another store's";
  release.chunk = 0;
  EXPECT_EQ(Send(kLink0, release).type, Type::kOk);
  EXPECT_EQ(shard_.MemoryUse().cuts, 0U);
  EXPECT_EQ(Send(kLink0, release).type, Type::kOk) << "again";
  ExpectError(kLink0, Read(5, 0), Code::kNotFound);
}

TEST_F(SnapshotTest, ALaterCutTakesThePlaceOfAnEarlierOneAndIsNotReadAsThat) {
  Round(1, 5);
  Send(kLink0, CutAt(3, 1));
  Round(2, 6);
  Send(kLink0, CutAt(4, 2));
  ExpectError(kLink0, Read(5, 0, 1), Code::kNotFound);
  EXPECT_EQ(First(Send(kLink0, Read(6, 0, 2))), 6.0F);
}

// The network may deliver a message twice.  The reader knows the version of the first cut.
TEST_F(SnapshotTest, ACutThatComesAgainIsTheOneThatIsKept) {
  Round(1, 5);
  Send(kLink0, CutAt(3, 1));
  Round(2, 6);
  EXPECT_EQ(Send(kLink0, CutAt(3, 1)).number, 1U);
  EXPECT_EQ(First(Send(kLink0, Read(4, 0, 1))), 5.0F);
  EXPECT_EQ(Send(kLink0, CutAt(5, 2)).number, 2U);
  EXPECT_EQ(Send(kLink0, CutAt(3, 1)).number, 2U) << "one before the last";
  EXPECT_EQ(First(Send(kLink0, Read(6, 0, 2))), 6.0F);
}

TEST_F(SnapshotTest, OneWorkerAtATimeCuts) {
  Send(kLink0, CutAt(3, 0));
  ExpectError(kLink1, CutAt(1, 0), Code::kFailedPrecondition);
  ExpectError(kLink1, Read(2, 0), Code::kNotFound);
  Send(kLink0, Make(Type::kRelease, 4));
  EXPECT_EQ(Send(kLink1, CutAt(3, 0)).type, Type::kValue);
}

TEST_F(SnapshotTest, OfTwoCutsThatWaitedOneIsKept) {
  Send(kLink0, Push(2, 1, 1));
  Send(kLink0, CutAt(3, 1));
  Send(kLink1, CutAt(1, 1));
  Send(kLink1, Push(2, 1, 1));
  int values = 0;
  int errors = 0;
  for (const auto& sending : effects_.sends) {
    values += static_cast<int>(sending.message.type == Type::kValue);
    errors += static_cast<int>(sending.message.type == Type::kError);
  }
  EXPECT_EQ(values, 1);
  EXPECT_EQ(errors, 1);
}

TEST_F(SnapshotTest, TheEndOfALifeFreesWhatItHasCut) {
  Send(kLink0, CutAt(3, 0));
  ++epoch_.number;
  epoch_.workers[0] = {7, Epoch::State::kAlive};
  shard_.On(epoch_, &effects_);
  EXPECT_EQ(shard_.MemoryUse().cuts, 0U);
  EXPECT_EQ(Send(kLink1, CutAt(1, 0)).type, Type::kValue);
}

TEST_F(SnapshotTest, AnotherConnectionOfTheSameLifeReadsOn) {
  Send(kLink0, CutAt(3, 0));
  shard_.Closed(kLink0);
  Greet(kLink0, 0, 4);
  EXPECT_EQ(Send(kLink0, Read(4, 0, 0)).type, Type::kValue);
}

TEST_F(SnapshotTest, ACutOutlivesItsKey) {
  Send(kLink0, CutAt(3, 0));
  EXPECT_EQ(Send(kLink0, Make(Type::kDelete, 4)).type, Type::kOk);
  EXPECT_EQ(Send(kLink0, Read(5, 0, 0)).type, Type::kValue);
}

TEST_F(SnapshotTest, RestoredStateGoesOnAsIfNothingHadBeen) {
  Send(kLink0, Control(2, "adam"));
  Round(1, 5);
  Round(2, -2);
  const ChunkState state = DecodeChunkState(Send(kLink0, CutAt(3, 2)).extra);
  std::vector<float> parts;
  for (const uint64_t part : {0U, 2U, 3U}) {
    const Message read = Send(kLink0, Read(4 + part, part, 2));
    const auto* const floats = reinterpret_cast<const float*>(read.body.data);
    parts.insert(parts.end(), floats, floats + 4);
  }
  Round(3, 7);
  const float expected = Value();
  Round(4, 1);
  ASSERT_EQ(Send(kLink0, Restore(10, state, parts)).type, Type::kOk);
  EXPECT_EQ(chunk().version, 4U) << "versions stay";
  Round(5, 7);
  EXPECT_EQ(Value(), expected);
}

TEST_F(SnapshotTest, WorkersGoOnFromTheStepOfRestoredValues) {
  const auto step_at = [&](LinkId link, uint64_t seq) {
    Message status = Make(Type::kStatus, seq);
    status.flags = kInStep;
    return DecodeChunkStatus(Send(link, status).extra).step;
  };
  Message restore = Restore(50, ChunkState(), {1, 2, 3, 4});
  restore.flags = kInStep;
  restore.extra = Encode(PushStep{7, 2}) + restore.extra;
  ASSERT_EQ(Send(kLink0, restore).type, Type::kOk);
  EXPECT_EQ(step_at(kLink0, 51), (PushStep{7, 0})) << "no key of the step lacks a push";
  EXPECT_EQ(step_at(kLink1, 51), (PushStep{7, 0}));
  ASSERT_EQ(Send(kLink0, Restore(52, ChunkState(), {1, 2, 3, 4})).type, Type::kOk);
  EXPECT_EQ(step_at(kLink1, 53), std::nullopt) << "restored without a step";
}

TEST_F(SnapshotTest, AnOptimizerThatIsSetButNotUsedYetGoesOnWithRestoredState) {
  Send(kLink0, Control(2, "adam"));
  ChunkState state;
  state.updates = 3;
  state.arrays = 2;
  state.spec = SpecOf("adam");
  const std::vector<float> parts(12, 1);
  ASSERT_EQ(Send(kLink0, Restore(3, state, parts)).type, Type::kOk);
  Round(1, 5);
  EXPECT_EQ(chunk().updates, 4U);
}

TEST_F(SnapshotTest, RestoreIsRefusedWhereItWouldTearARoundOrFitsNothing) {
  Send(kLink0, Control(2, "adam"));
  Round(1, 5);
  ChunkState state;
  state.spec = SpecOf("adam");
  ExpectError(kLink1, Restore(50, state, {1, 1, 1, 1}), Code::kFailedPrecondition);
  ExpectError(kLink0, Restore(51, state, {1, 1, 1}), Code::kInvalidArgument);
  state.arrays = 1;
  state.updates = 1;
  ExpectError(kLink0, Restore(52, state, std::vector<float>(8)), Code::kInvalidArgument);
  state.arrays = 2;
  state.spec = SpecOf("sgd");
  ExpectError(kLink0, Restore(53, state, std::vector<float>(12)), Code::kFailedPrecondition);
  state.spec = SpecOf("adam");
  state.has_master = true;
  ExpectError(kLink0, Restore(54, state, std::vector<float>(16)), Code::kFailedPrecondition);
  state.has_master = false;
  Send(kLink1, Push(200, 2, 1));
  ExpectError(kLink0, Restore(55, state, std::vector<float>(12)), Code::kFailedPrecondition);
  Message garbage = Restore(56, state, {});
  garbage.extra.resize(3);
  ExpectViolation(kLink0, garbage);
}

// As `kv.round` counts them, which goes on from the snapshot.
TEST_F(SnapshotTest, ErrorsCountRoundsFromTheRestoredOne) {
  ChunkState state;
  state.has_value = true;
  Message restore = Restore(2, state, {1, 1, 1, 1});
  restore.number = 40;
  ASSERT_EQ(Send(kLink0, restore).type, Type::kOk);
  EXPECT_EQ(Send(kLink0, Push(3, 2, 1)).extra.substr(0, 35), "round 42, version 40 is the newest;");
  Send(kLink0, Push(4, 1, 1));
  Message late = Restore(5, state, {1, 1, 1, 1});
  EXPECT_EQ(Send(kLink0, late).extra,
            "round 41 has begun; values are put back between two barriers");
  Send(kLink0, Make(Type::kPull, 6, 1));
  ++epoch_.number;
  epoch_.workers[1].state = Epoch::State::kDead;
  effects_.Clear();
  shard_.On(epoch_, &effects_);
  EXPECT_EQ(LastFor(kLink0).extra, "worker 1 is dead; round 41 needs it");
  ++epoch_.number;
  epoch_.workers[1].state = Epoch::State::kLeft;
  shard_.On(epoch_, &effects_);
  EXPECT_EQ(Send(kLink0, Make(Type::kPull, 7, 1)).extra,
            "worker 1 left after round 40; round 41 needs it");
}

TEST_F(SnapshotTest, AnAssignedValueKeepsStatesCountsAndRounds) {
  Send(kLink0, Control(2, "adam"));
  Round(1, 5);
  const auto updates = chunk().updates;
  const auto states = chunk().states.size();
  Message assign = Restore(50, ChunkState(), {1, 2, 3, 4});
  assign.flags = kOnlyValue;
  assign.number = 77;
  ASSERT_EQ(Send(kLink0, assign).type, Type::kOk);
  EXPECT_EQ(Value(), 1);
  EXPECT_EQ(chunk().updates, updates);
  EXPECT_EQ(chunk().states.size(), states);
  EXPECT_EQ(chunk().version, 1U);
  EXPECT_EQ(chunk().base, 0U);
}

TEST_F(SnapshotTest, AnAssignIsRefusedWhereItWouldTearARoundOrFitsNothing) {
  Round(1, 5);
  const float before = Value();
  const auto assign = [&](uint64_t seq, std::vector<float> values) {
    Message message = Restore(seq, ChunkState(), std::move(values));
    message.flags = kOnlyValue;
    return message;
  };
  ExpectError(kLink1, assign(50, {1, 2, 3, 4}), Code::kFailedPrecondition);
  ExpectError(kLink0, assign(51, {1, 2, 3}), Code::kInvalidArgument);
  ExpectError(kLink0, assign(52, {}), Code::kInvalidArgument);
  ExpectError(kLink0, assign(53, std::vector<float>(8)), Code::kInvalidArgument);
  Send(kLink1, Push(200, 2, 1));
  ExpectError(kLink0, assign(54, {1, 2, 3, 4}), Code::kFailedPrecondition);
  EXPECT_EQ(Value(), before);
}

TEST_F(SnapshotTest, AnObserverCutsNothing) {
  Message hello;
  hello.type = Type::kHello;
  hello.extra = Encode(Hello{"", Role::kObserver, kNoRank, 77, 0, ""});
  ASSERT_EQ(Send(5, hello).type, Type::kWelcome);
  ExpectViolation(5, CutAt(1, 0));
}

}  // namespace
}  // namespace tkv
