#include <bit>

#include "kernels/encode.h"
#include "kernels/half.h"
#include "tests/shard_fixture.h"

namespace tkv {
namespace {

using test::kLink0;
using test::kLink1;
using test::ShardTest;

// Returns the same push in an encoding that is exact for its values: 127, or 1 for 1bit.
Message Encoded(Message push, Encoding encoding) {
  if (encoding == Encoding::kDense) return push;
  const size_t count = push.body.size / sizeof(float);
  const auto* const values = reinterpret_cast<const float*>(push.body.data);
  push.encoding = encoding;
  std::vector<std::byte> bytes(kernels::EncodedBytes(encoding, count));
  if (encoding == Encoding::kTopK) {
    bytes.resize(count * 8);
    for (uint32_t i = 0; i < count; ++i) std::memcpy(bytes.data() + 4 * i, &i, sizeof(i));
    std::memcpy(bytes.data() + 4 * count, values, 4 * count);
  } else {
    const bool has_threshold = encoding == Encoding::k2Bit || encoding == Encoding::k1Bit;
    const float threshold = encoding == Encoding::k1Bit ? 0.5F : values[0];
    std::vector<float> residual(count);
    kernels::Encode({encoding, threshold}, values, residual.data(), bytes.data(), count);
    if (has_threshold) push.param = std::bit_cast<uint32_t>(threshold);
  }
  auto owner = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  push.body = {owner->data(), owner->size(), owner};
  return push;
}

constexpr Encoding kEncodings[] = {Encoding::kDense, Encoding::kF16,  Encoding::kBf16,
                                   Encoding::kInt8,  Encoding::k2Bit, Encoding::k1Bit,
                                   Encoding::kTopK};

float ReadOf(Encoding encoding) { return encoding == Encoding::k1Bit ? 1.0F : 127.0F; }

TEST_F(ShardTest, ARoundCompletesWhenAllMembersHavePushed) {
  EXPECT_EQ(Send(kLink0, Push(2, 1, 1)).type, Type::kAccepted);
  EXPECT_EQ(chunk().version, 0U);
  EXPECT_EQ(Send(kLink1, Push(1, 1, 2)).type, Type::kAccepted);
  EXPECT_EQ(chunk().version, 1U);
  EXPECT_EQ(Value(), 3.0F);
}

TEST_F(ShardTest, ARepeatedPushCountsOnceAndIsAnsweredAgain) {
  Send(kLink0, Push(2, 1, 1));
  EXPECT_EQ(Send(kLink0, Push(2, 1, 1)).type, Type::kAccepted);
  EXPECT_EQ(Send(kLink0, Push(3, 1, 1)).type, Type::kAccepted) << "another seq, the same round";
  Send(kLink1, Push(1, 1, 2));
  EXPECT_EQ(Value(), 3.0F);
}

TEST_F(ShardTest, ABarrierThatFailsOnOneFailsOnAllAndTheNextOneDoesNot) {
  key_ = IdOf(InternalKey(0, "barrier"));
  const auto barrier = [&](uint64_t seq, uint64_t round) {
    Message push = Make(Type::kPush, seq, round);
    push.flags = kBarrierKey;
    return push;
  };
  Message failed = barrier(2, 1);
  failed.flags |= kFails;
  failed.extra = EncodeFailure(Error(Code::kNotFound, "load: there is no snapshot"));
  EXPECT_EQ(Send(kLink0, failed).type, Type::kAccepted);
  EXPECT_EQ(Send(kLink0, failed).type, Type::kAccepted) << "a repetition";
  EXPECT_EQ(Send(kLink1, barrier(1, 1)).type, Type::kAccepted);
  const Message error = Send(kLink1, Make(Type::kPull, 2, 1));
  EXPECT_EQ(ErrorOf(error).code(), Code::kNotFound);
  EXPECT_EQ(error.extra, "worker 0: load: there is no snapshot");
  EXPECT_EQ(Send(kLink0, barrier(3, 2)).type, Type::kAccepted);
  EXPECT_EQ(Send(kLink1, barrier(3, 2)).type, Type::kAccepted);
  EXPECT_EQ(Send(kLink1, Make(Type::kPull, 4, 2)).type, Type::kValue);
}

TEST_F(ShardTest, ABarrierForWhatNobodyHasDoneFailsOnAllAndOneForWhatIsDoneDoesNot) {
  key_ = IdOf(InternalKey(0, "barrier"));
  const auto barrier = [&](uint64_t seq, uint64_t round, uint8_t flags) {
    Message push = Make(Type::kPush, seq, round);
    push.flags = static_cast<uint8_t>(kBarrierKey | flags);
    if ((flags & kFails) != 0) push.extra = EncodeFailure(Error(Code::kAborted, "it is not done"));
    return push;
  };
  Send(kLink0, barrier(2, 1, kDone));
  Send(kLink1, barrier(1, 1, kFails | kUnlessDone));
  EXPECT_EQ(Send(kLink1, Make(Type::kPull, 2, 1)).type, Type::kValue);
  Send(kLink0, barrier(3, 2, 0));
  Send(kLink1, barrier(3, 2, kFails | kUnlessDone));
  const Message error = Send(kLink0, Make(Type::kPull, 4, 2));
  EXPECT_EQ(ErrorOf(error).code(), Code::kAborted);
  EXPECT_EQ(error.extra, "it is not done");
  Send(kLink0, barrier(5, 3, kDone));
  Send(kLink1, barrier(5, 3, kFails));
  EXPECT_EQ(Send(kLink0, Make(Type::kPull, 6, 3)).extra, "worker 1: it is not done");
}

// The lowest rank would have the task next, so its knowledge of the dead is right.
TEST_F(ShardTest, AnUndoneTaskIsNamedByTheLowestRank) {
  key_ = IdOf(InternalKey(0, "barrier"));
  for (const bool is_lowest_first : {false, true}) {
    const uint64_t round = is_lowest_first ? 2 : 1;
    for (const bool is_lowest : {is_lowest_first, !is_lowest_first}) {
      Message push = Make(Type::kPush, round * 2, round);
      push.flags = kBarrierKey | kFails | kUnlessDone;
      push.extra = EncodeFailure(Error(Code::kAborted, is_lowest ? "worker 0" : "worker 1"));
      EXPECT_EQ(Send(is_lowest ? kLink0 : kLink1, push).type, Type::kAccepted);
    }
    EXPECT_EQ(Send(kLink0, Make(Type::kPull, round * 2 + 1, round)).extra, "worker 0");
  }
}

class NoBarrierTest : public ShardTest, public ::testing::WithParamInterface<uint8_t> {};

TEST_P(NoBarrierTest, OnlyABarrierCanFail) {
  Message push = Push(2, 1, 1);
  push.flags = GetParam();
  push.extra = EncodeFailure(Error(Code::kNotFound, "?"));
  ExpectViolation(kLink0, push);
}

INSTANTIATE_TEST_SUITE_P(Flags, NoBarrierTest, ::testing::Values(kFails, kUnlessDone, kDone));

TEST_F(ShardTest, BelowLowNothingIsDone) {
  shard_.Header(kLink0, 3);
  EXPECT_EQ(Send(kLink0, Push(2, 1, 1)).type, Type{});
  EXPECT_TRUE(chunk().rounds.empty());
}

TEST_F(ShardTest, AParkedPullIsAnsweredAtExactlyItsVersion) {
  Send(kLink0, Push(2, 1, 1));
  EXPECT_EQ(Send(kLink0, Make(Type::kPull, 3, 1)).type, Type{});
  Send(kLink1, Push(1, 1, 2));
  const Message value = LastFor(kLink0);
  EXPECT_EQ(value.type, Type::kValue);
  EXPECT_EQ(value.number, 1U);
}

TEST_F(ShardTest, APullThatWaitsForADeadWorkerFailsAndNamesIt) {
  Send(kLink0, Push(2, 1, 1));
  Send(kLink0, Make(Type::kPull, 3, 1));
  effects_.Clear();
  ++epoch_.number;
  epoch_.workers[1].state = Epoch::State::kDead;
  shard_.On(epoch_, &effects_);
  const Message error = LastFor(kLink0);
  EXPECT_EQ(error.type, Type::kError);
  EXPECT_EQ(error.extra, "worker 1 is dead; round 1 needs it");
}

// Otherwise each of two workers that die at once would fail in the other's absence.
TEST_F(ShardTest, AWorkerThatHasComeAgainWaitsForTheNextLivesOfOthers) {
  epoch_.number = 2;
  epoch_.workers[0].incarnation = 6;
  epoch_.workers[1].state = Epoch::State::kDead;
  shard_.On(epoch_, &effects_);
  constexpr LinkId kLater = 3;
  Greet(kLater, 0, 6);
  Send(kLater, Push(1, 1, 1));
  EXPECT_EQ(Send(kLater, Make(Type::kPull, 2, 1)).type, Type{}) << "worker 1 may come again";
  Message describe = Make(Type::kDescribe, 3);
  describe.key = IdOf("other");
  EXPECT_EQ(Send(kLater, describe).type, Type{});
  ++epoch_.number;
  epoch_.workers[1].state = Epoch::State::kLost;
  effects_.Clear();
  shard_.On(epoch_, &effects_);
  EXPECT_EQ(LastFor(kLater).extra, "worker 1 is dead; round 1 needs it");
}

TEST_F(ShardTest, UnderContinueTheRoundGoesOnWithoutTheDead) {
  Send(kLink0, Push(2, 1, 1));
  ++epoch_.number;
  epoch_.policy = Epoch::Policy::kContinue;
  epoch_.workers[1].state = Epoch::State::kDead;
  shard_.On(epoch_, &effects_);
  EXPECT_EQ(chunk().version, 1U);
  EXPECT_EQ(Value(), 1.0F);
}

TEST_F(ShardTest, ALaterLifeFencesTheEarlierOne) {
  ++epoch_.number;
  epoch_.workers[1].incarnation = 6;
  effects_.Clear();
  shard_.On(epoch_, &effects_);
  ASSERT_EQ(effects_.closes.size(), 1U);
  EXPECT_EQ(effects_.closes[0].code, Code::kAborted);
  Greet(3, 1, 5);
  ASSERT_EQ(effects_.closes.size(), 1U) << "the old life is turned away";
  EXPECT_EQ(effects_.closes[0].code, Code::kAborted);
  EXPECT_EQ(Greet(4, 1, 6).type, Type::kWelcome);
}

TEST_F(ShardTest, AHelloWaitsForTheEpochThatListsIt) {
  EXPECT_EQ(Greet(3, 1, 8).type, Type{});
  effects_.Clear();
  ++epoch_.number;
  epoch_.workers[1].incarnation = 8;
  shard_.On(epoch_, &effects_);
  EXPECT_EQ(LastFor(3).type, Type::kWelcome);
}

// Such pushes come from a worker that has missed a DELETE and an INIT of the key.  Only the
// operation fails.
TEST_F(ShardTest, APushThatDoesNotFitTheKeyIsAnErrorAndTheSessionGoesOn) {
  ExpectError(kLink0, Push(2, 5, 1), Code::kFailedPrecondition);  // a future round
  Message other_dtype = Push(3, 1, 1);
  other_dtype.dtype = DType::kF64;
  ExpectError(kLink0, other_dtype, Code::kFailedPrecondition);
  Message other_size = Push(4, 1, 1);
  other_size.body = Floats({1});
  ExpectError(kLink0, other_size, Code::kFailedPrecondition);
  EXPECT_EQ(Send(kLink0, Push(5, 1, 1)).type, Type::kAccepted);
}

TEST_F(ShardTest, AnEncodingThatIsNotThereIsAnErrorThatNamesItAndTheSessionGoesOn) {
  Message push = Push(2, 1, 1);
  push.encoding = static_cast<Encoding>(10);
  EXPECT_FALSE(shard_.Admit(kLink0, push)) << "no memory for what nobody can read";
  const Message reply = Send(kLink0, push);
  EXPECT_EQ(ErrorOf(reply).code(), Code::kUnimplemented);
  EXPECT_NE(reply.extra.find("encoding 10 is not in protocol 2"), std::string::npos) << reply.extra;
  ExpectError(kLink0, Make(Type::kPush, 3, 1), Code::kFailedPrecondition);
  EXPECT_EQ(Send(kLink0, Push(4, 1, 1)).type, Type::kAccepted);
}

TEST_F(ShardTest, WorkersOfOneRoundMayUseDifferentEncodings) {
  uint64_t round = 0;
  for (const Encoding first : kEncodings) {
    for (const Encoding second : kEncodings) {
      ++round;
      const Message one = Encoded(Push(round + 1, round, 127), first);
      const Message other = Encoded(Push(round, round, 127), second);
      EXPECT_TRUE(shard_.Admit(kLink0, one));
      ASSERT_EQ(Send(kLink0, one).type, Type::kAccepted);
      ASSERT_EQ(Send(kLink1, other).type, Type::kAccepted);
      EXPECT_EQ(Value(), ReadOf(first) + ReadOf(second)) << NameOf(first) << " " << NameOf(second);
    }
  }
}

TEST_F(ShardTest, EncodedPushesAreUpdatedWithAndHeldInTheOrderOfRanks) {
  for (const bool deterministic : {false, true}) {
    meta_.name = CanonicalKey(0, deterministic ? "held" : "summed");
    meta_.deterministic = deterministic;
    key_ = IdOf(meta_.name);
    Message init = Make(Type::kInit, deterministic ? 200 : 100);
    init.extra = Encode(meta_);
    init.body = Floats({0, 0, 0, 0});
    ASSERT_EQ(Send(kLink0, init).type, Type::kOk);
    uint64_t round = 0;
    for (const Encoding encoding : kEncodings) {
      ++round;
      const uint64_t seq = (deterministic ? 200 : 100) + round;
      ASSERT_EQ(Send(kLink1, Encoded(Push(seq, round, 127), encoding)).type, Type::kAccepted);
      ASSERT_EQ(Send(kLink0, Push(seq, round, 1)).type, Type::kAccepted);
      EXPECT_EQ(Value(), ReadOf(encoding) + 1) << NameOf(encoding);
    }
  }
  EXPECT_EQ(shard_.MemoryUse().held, 0U);
}

// A shard with a float16 key whose value begins at 0.
class NarrowKeyTest : public ShardTest {
 protected:
  void Make16Bit(const char* name, bool deterministic, KeyMeta::Mode mode = KeyMeta::Mode::kSync) {
    meta_.name = CanonicalKey(0, name);
    meta_.dtype = DType::kF16;
    meta_.deterministic = deterministic;
    meta_.mode = mode;
    key_ = IdOf(meta_.name);
    Message init = Narrow(seq_++, 0, 0);
    init.type = Type::kInit;
    init.number = 0;
    init.extra = Encode(meta_);
    ASSERT_EQ(Send(kLink0, init).type, Type::kOk);
  }
  Message Narrow(uint64_t seq, uint64_t round, float value) {
    Message push = Make(Type::kPush, seq, round);
    push.dtype = DType::kF16;
    auto owner = std::make_shared<std::vector<uint16_t>>(4, kernels::F16FromF32(value));
    push.body = {reinterpret_cast<const std::byte*>(owner->data()), 8, owner};
    return push;
  }
  Message Wide(uint64_t seq, uint64_t round, float value) {
    Message push = Push(seq, round, value);
    push.dtype = DType::kF16;
    push.encoding = Encoding::kF32;
    return push;
  }
  Message WideRuns(uint64_t seq, uint64_t round, float value) {
    Message push = Wide(seq, round, value);
    const auto bits = std::bit_cast<uint32_t>(value);
    auto owner = std::make_shared<std::vector<uint32_t>>(
        std::vector<uint32_t>{1, 0, 0, 4, bits, bits, bits, bits});
    push.encoding = Encoding::kRuns;
    push.param = codec::kWideValues;
    push.body = {reinterpret_cast<const std::byte*>(owner->data()), owner->size() * 4, owner};
    return push;
  }
  float Narrowed() {
    uint16_t bits;
    std::memcpy(&bits, chunk().value.Read().data, sizeof(bits));
    return kernels::F32FromF16(bits);
  }
  uint64_t seq_ = 300;
};

// 2049 is no float16: the sum of one worker must not be rounded before the other one's is added.
TEST_F(NarrowKeyTest, SumsThatWorkersHaveMadeInFloat32AreRoundedOnce) {
  for (const bool deterministic : {false, true}) {
    Make16Bit(deterministic ? "held" : "summed", deterministic);
    uint64_t round = 0;
    const std::pair<Message, Message> rounds[] = {
        {Wide(0, 0, 2049), Narrow(0, 0, 1)},   {Narrow(0, 0, 1), Wide(0, 0, 2049)},
        {Wide(0, 0, 2049), Wide(0, 0, 1)},     {WideRuns(0, 0, 2049), Narrow(0, 0, 1)},
        {Wide(0, 0, 1), WideRuns(0, 0, 2049)}, {WideRuns(0, 0, 1), WideRuns(0, 0, 2049)}};
    for (auto [first, second] : rounds) {
      first.number = second.number = ++round;
      first.seq = seq_++;
      second.seq = seq_++;
      EXPECT_TRUE(shard_.Admit(kLink0, first));
      ASSERT_EQ(Send(kLink0, first).type, Type::kAccepted);
      ASSERT_EQ(Send(kLink0, first).type, Type::kAccepted) << "a repetition";
      ASSERT_EQ(Send(kLink1, second).type, Type::kAccepted);
      EXPECT_EQ(Narrowed(), 2050) << round;
    }
  }
  EXPECT_TRUE(shard_.Miscounted().empty());
}

TEST_F(NarrowKeyTest, AnAsynchronousKeyTakesSumsInFloat32) {
  Make16Bit("async", false, KeyMeta::Mode::kAsync);
  ASSERT_EQ(Send(kLink0, Wide(seq_++, 0, 2051)).type, Type::kAccepted);
  EXPECT_EQ(Narrowed(), 2052) << "to nearest even";
  ASSERT_EQ(Send(kLink0, WideRuns(seq_++, 0, 3)).type, Type::kAccepted);
  EXPECT_EQ(Narrowed(), 3);
}

TEST_F(NarrowKeyTest, WhatIsNoSumOfIts16BitValuesIsRefused) {
  Message of_float32 = Push(seq_++, 1, 1);
  of_float32.encoding = Encoding::kF32;
  ExpectError(kLink0, of_float32, Code::kInvalidArgument);
  Make16Bit("w16", false);
  Message shorter = Wide(seq_++, 1, 1);
  shorter.body.size -= 4;
  EXPECT_FALSE(shard_.Admit(kLink0, shorter));
  ExpectError(kLink0, shorter, Code::kFailedPrecondition);
  Message with_number = Wide(seq_++, 1, 1);
  with_number.param = codec::kWideValues;
  ExpectError(kLink0, with_number, Code::kInvalidArgument);
  Message runs = WideRuns(seq_++, 1, 1);
  runs.param = 2;
  ExpectError(kLink0, runs, Code::kInvalidArgument);
  runs.param = 0;
  ExpectError(kLink0, runs, Code::kInvalidArgument);  // twice as many bytes as 16-bit values have
  EXPECT_EQ(Send(kLink0, Narrow(seq_, 1, 1)).type, Type::kAccepted);
}

TEST_F(ShardTest, AnAsynchronousKeyTakesEncodedPushes) {
  meta_.name = CanonicalKey(0, "async");
  meta_.mode = KeyMeta::Mode::kAsync;
  key_ = IdOf(meta_.name);
  Message init = Make(Type::kInit, 100);
  init.extra = Encode(meta_);
  init.body = Floats({0, 0, 0, 0});
  ASSERT_EQ(Send(kLink0, init).type, Type::kOk);
  uint64_t seq = 100;
  for (const Encoding encoding : kEncodings) {
    ASSERT_EQ(Send(kLink0, Encoded(Push(++seq, 0, 127), encoding)).type, Type::kAccepted);
    EXPECT_EQ(Value(), ReadOf(encoding)) << NameOf(encoding);
  }
}

TEST_F(ShardTest, ATopKPushWhosePositionsAreNotTheChunksChangesNothing) {
  Message push = Encoded(Push(2, 1, 1), Encoding::kTopK);
  const uint32_t beyond = 4;
  std::memcpy(const_cast<std::byte*>(push.body.data), &beyond, sizeof(beyond));
  ExpectError(kLink0, push, Code::kInvalidArgument);
  Send(kLink0, Push(3, 1, 1));
  Send(kLink1, Push(1, 1, 2));
  EXPECT_EQ(Value(), 3.0F);
}

// The head of a frame is judged before its messages run.  A push may follow the INIT of its key in
// the same frame: the key does not exist yet, and the body gets no memory.
TEST_F(ShardTest, APushWhoseBodyWasNotAdmittedIsRefusedAndTheNextOneCounts) {
  Message push = Push(2, 1, 3);
  push.body = {nullptr, push.body.size, nullptr};
  const Message refused = Send(kLink0, push);
  ASSERT_EQ(refused.type, Type::kError);
  EXPECT_EQ(ErrorOf(refused).code(), Code::kFailedPrecondition);
  EXPECT_EQ(Send(kLink0, Push(3, 1, 3)).type, Type::kAccepted);
  EXPECT_TRUE(effects_.closes.empty());
}

TEST_F(ShardTest, AChunkBelongsToTheServerThatThePlacementNames) {
  epoch_.number = 2;
  epoch_.servers.push_back({10, Epoch::State::kAlive});
  epoch_.placement = {2, 2, std::vector<uint32_t>(kSlots, 1)};
  shard_.On(epoch_, &effects_);
  meta_.name = CanonicalKey(0, "elsewhere");
  key_ = IdOf(meta_.name);
  Message init = Make(Type::kInit, 2);
  init.extra = Encode(meta_);
  init.body = Floats({0, 0, 0, 0});
  EXPECT_FALSE(shard_.Admit(kLink0, init));
  epoch_.number = 3;
  epoch_.placement.slots[SlotOf(key_, 0)] = 0;
  shard_.On(epoch_, &effects_);
  EXPECT_TRUE(shard_.Admit(kLink0, init));
  EXPECT_EQ(Send(kLink0, init).type, Type::kOk);
}

TEST_F(ShardTest, WhoSpeaksAnotherProtocolOrRequiresWhatIsNotThereIsRefused) {
  Hello hello{"", Role::kWorker, 0, 4, 0, ""};
  hello.protocol.features = hello.protocol.required = 1;
  Message message;
  message.type = Type::kHello;
  message.extra = Encode(hello);
  Send(7, message);
  ASSERT_EQ(effects_.closes.size(), 1U);
  EXPECT_EQ(effects_.closes[0].code, Code::kFailedPrecondition);
  EXPECT_NE(
      effects_.closes[0].reason.find("worker 0 (protocol 2) requires features 0x1, which server 0"),
      std::string::npos);
  hello.protocol.required = 0;
  message.extra = Encode(hello);
  EXPECT_EQ(Send(8, message).type, Type::kWelcome) << "features that only one has are not used";
  EXPECT_EQ(DecodeWelcome(LastFor(8).extra).protocol, Protocol{});
}

TEST_F(ShardTest, AKeyThatWasMadeAnewIsAnotherOneForWhoeverMissedIt) {
  Send(kLink0, Make(Type::kDelete, 2));
  meta_.birth = 7;
  Message init = Make(Type::kInit, 3);
  init.extra = Encode(meta_);
  init.body = Floats({0, 0, 0, 0});
  EXPECT_EQ(Send(kLink0, init).type, Type::kOk);
  uint64_t seq = 0;
  for (const Type type : {Type::kPush, Type::kPull, Type::kAbstain}) {
    Message old = type == Type::kPush ? Push(++seq, 1, 1) : Make(type, ++seq, 1);
    old.flags = kOfBirth;
    old.need = 6;
    ExpectError(kLink1, old, Code::kFailedPrecondition);
    EXPECT_NE(LastFor(kLink1).extra.find("between two barriers"), std::string::npos);
  }
  Message push = Push(++seq, 1, 1);
  push.flags = kOfBirth;
  push.need = 7;
  EXPECT_EQ(Send(kLink1, push).type, Type::kAccepted);
}

TEST_F(ShardTest, ALateDeleteErasesNoKeyThatWasMadeAnew) {
  epoch_.policy = Epoch::Policy::kContinue;
  ++epoch_.number;
  shard_.On(epoch_, &effects_);
  Message erase = Make(Type::kDelete, 2);
  erase.flags = kOfBirth;
  erase.need = meta_.birth;
  EXPECT_EQ(Send(kLink0, erase).type, Type::kOk);
  EXPECT_EQ(shard_.FindKey(key_), nullptr);
  meta_.birth = 7;
  Message init = Make(Type::kInit, 3);
  init.extra = Encode(meta_);
  init.body = Floats({0, 0, 0, 0});
  EXPECT_EQ(Send(kLink0, init).type, Type::kOk);
  erase.seq = 1;
  EXPECT_EQ(Send(kLink1, erase).type, Type::kOk) << "the key that it means is gone";
  EXPECT_NE(shard_.FindKey(key_), nullptr);
}

TEST_F(ShardTest, AnInitThatIsRepeatedBeforeTheFirstRoundIsTheSameKeyForOthers) {
  meta_.birth = 7;
  Message init = Make(Type::kInit, 2);
  init.flags = kOverwrite;
  init.extra = Encode(meta_);
  init.body = Floats({1, 1, 1, 1});
  EXPECT_EQ(Send(kLink0, init).type, Type::kOk);
  Message push = Push(1, 1, 1);
  push.flags = kOfBirth;
  push.need = 0;  // the birth in the first INIT
  EXPECT_EQ(Send(kLink1, push).type, Type::kAccepted);
}

TEST_F(ShardTest, WhoWaitsForAKeyWaitsOnWhereAnInitWritesOverIt) {
  for (uint64_t i = 0; i < 2; ++i) {  // the same key, then a later birth of its shape
    meta_.birth = i;
    EXPECT_EQ(Send(kLink1, Make(Type::kPull, 1, 1)).type, Type{});
    Message again = Make(Type::kInit, 2 + i);
    again.flags = kOverwrite;
    again.extra = Encode(meta_);
    again.body = Floats({0, 0, 0, 0});
    ASSERT_EQ(Send(kLink0, again).type, Type::kOk);
    EXPECT_EQ(chunk().parked.size(), 1U);
  }
  Send(kLink0, Push(4, 1, 1));
  Send(kLink1, Push(2, 1, 2));
  size_t values = 0;
  for (const auto& sending : effects_.sends) values += sending.message.type == Type::kValue;
  EXPECT_EQ(values, 1U) << "the pull is answered once";
}

TEST_F(ShardTest, WhoWaitsForAKeyThatIsMadeAnewInAnotherShapeIsToldAndCountedNoMore) {
  for (uint64_t i = 0; i < 20; ++i) {  // more than the limit of waiting operations
    EXPECT_EQ(Send(kLink1, Make(Type::kPull, 1 + i, 1)).type, Type{}) << i;
    meta_.shape = Shape({4 + static_cast<int64_t>(i % 2)});
    meta_.dtype = i % 2 == 0 ? DType::kI32 : DType::kF32;
    Message again = Make(Type::kInit, 2 + i);
    again.flags = kOverwrite;
    again.extra = Encode(meta_);
    again.body = Floats(std::vector<float>(meta_.elements()));
    ASSERT_EQ(Send(kLink0, again).type, Type::kOk) << i;
    const Message told = LastFor(kLink1);
    ASSERT_EQ(told.type, Type::kError) << i;
    EXPECT_EQ(told.seq, 1 + i);
    EXPECT_EQ(ErrorOf(told).code(), Code::kNotFound);
  }
}

// Waiting pushes may create keys when their turn comes, and must not move other keys in memory.
TEST_F(ShardTest, WaitingPushesThatMakeKeysTouchNothingOfTheOneTheyWaitFor) {
  meta_.mode = KeyMeta::Mode::kAsync;
  meta_.name = CanonicalKey(0, "async");
  const KeyId target = key_ = IdOf(meta_.name);
  uint64_t seq = 1;
  Message init = Make(Type::kInit, ++seq);
  init.extra = Encode(meta_);
  init.body = Floats({0, 0, 0, 0});
  ASSERT_EQ(Send(kLink0, init).type, Type::kOk);
  constexpr uint64_t kAwaited = 500;
  meta_.shape = Shape({0});
  for (int i = 0; i < 100; ++i) {
    meta_.name = CanonicalKey(0, static_cast<int64_t>(i));
    key_ = IdOf(meta_.name);
    Message empty = Make(Type::kInit, ++seq);
    empty.extra = Encode(meta_);
    ASSERT_EQ(Send(kLink0, empty).type, Type::kOk);
    Message waits = Make(Type::kPush, ++seq, 1);
    waits.flags = kBarrierKey;
    waits.need = kAwaited;
    EXPECT_EQ(Send(kLink0, waits).type, Type{});
    ASSERT_EQ(Send(kLink0, Make(Type::kDelete, ++seq)).type, Type::kOk);
  }
  key_ = target;
  EXPECT_EQ(Send(kLink0, Make(Type::kPull, ++seq, 1)).type, Type{});
  Send(kLink0, Push(kAwaited, 1, 3));
  EXPECT_EQ(Value(), 3.0F);
  const auto value = std::find_if(effects_.sends.begin(), effects_.sends.end(),
                                  [](const auto& s) { return s.message.type == Type::kValue; });
  ASSERT_NE(value, effects_.sends.end());
  EXPECT_EQ(value->message.body.size, 16U);
  EXPECT_EQ(effects_.sends.size(), 102U) << "each push that waited is accepted";
}

TEST_F(ShardTest, TheWindowCannotBeOverrun) { ExpectViolation(kLink0, Push(5000, 1, 1)); }

TEST_F(ShardTest, AFloodOfPullsIsBounded) {
  Send(kLink0, Push(2, 1, 1));
  for (uint64_t seq = 3; seq < 3 + Options().parked_max; ++seq) {
    EXPECT_EQ(Send(kLink0, Make(Type::kPull, seq, 1)).type, Type{});
  }
  ExpectError(kLink0, Make(Type::kPull, 100, 1), Code::kResourceExhausted);
  Message describe = Make(Type::kDescribe, 101);
  describe.key.low ^= 1;
  ExpectError(kLink0, describe, Code::kResourceExhausted);
}

TEST_F(ShardTest, AChunkOfAnotherKeyIsRefused) {
  Message init = Make(Type::kInit, 2);
  init.chunk = 1;
  init.extra = Encode(meta_);
  ExpectViolation(kLink0, init);
}

TEST_F(ShardTest, AKeyThatNotEveryWorkerHoldsIsRefused) {
  LinkId link = kLink0;
  for (const std::string_view text : {std::string_view("lat\xe9n"), std::string_view("p\0q", 3)}) {
    meta_.name = CanonicalKey(0, text);
    Message init = Make(Type::kInit, 2);
    init.key = IdOf(meta_.name);
    init.extra = Encode(meta_);
    ExpectViolation(std::exchange(link, kLink1), init);
  }
}

TEST_F(ShardTest, AStrangerSaysHelloFirst) {
  Send(77, Push(1, 1, 1));
  ASSERT_EQ(effects_.closes.size(), 1U);
  EXPECT_EQ(effects_.closes[0].code, Code::kUnauthenticated);
}

TEST_F(ShardTest, AnUnknownKeyIsNotFoundAndTheSessionLives) {
  Message push = Push(2, 1, 1);
  push.key.low ^= 1;
  EXPECT_EQ(Send(kLink0, push).type, Type::kError);
  EXPECT_TRUE(effects_.closes.empty());
}

TEST_F(ShardTest, BodiesThatNobodyWantsTakeNoMemory) {
  Message push = Push(2, 1, 1);
  push.body.size = size_t{1} << 60;
  EXPECT_FALSE(shard_.Admit(kLink0, push));
  push.key.low ^= 1;
  EXPECT_FALSE(shard_.Admit(kLink0, push));
  EXPECT_FALSE(shard_.Admit(77, Push(2, 1, 1)));
}

TEST_F(ShardTest, TheBodyOfAnInitMayLandOnlyWhereItsHeadIsRight) {
  KeyMeta meta = meta_;
  meta.name = CanonicalKey(0, "large");
  meta.shape = Shape({int64_t{50} << 20});  // one chunk of 200 MiB
  meta.chunk_elements = 50U << 20;
  Message init = Make(Type::kInit, 2);
  init.key = IdOf(meta.name);
  init.extra = Encode(meta);
  init.body.size = size_t{200} << 20;
  EXPECT_TRUE(shard_.Admit(kLink0, init));
  {
    Message larger = init;
    meta.shape = Shape({int64_t{75} << 20});
    meta.chunk_elements = 75U << 20;
    larger.extra = Encode(meta);
    larger.body.size = size_t{300} << 20;
    EXPECT_FALSE(shard_.Admit(kLink0, larger)) << "no push could bring so much for one chunk";
    EXPECT_EQ(ErrorOf(Send(kLink0, larger)).code(), Code::kResourceExhausted);
  }
  EXPECT_FALSE(shard_.Admit(kLink1, init)) << "rank 0 creates keys";
  for (const auto& [what, spoil] : std::vector<std::pair<const char*, void (*)(Message*)>>{
           {"no metadata", [](Message* m) { m->extra.clear(); }},
           {"metadata that is cut", [](Message* m) { m->extra.pop_back(); }},
           {"a size that is not the chunk's", [](Message* m) { ++m->body.size; }},
           {"a chunk that the key does not have", [](Message* m) { m->chunk = 1; }},
           {"another key's name", [](Message* m) { ++m->key.low; }}}) {
    Message wrong = init;
    spoil(&wrong);
    EXPECT_FALSE(shard_.Admit(kLink0, wrong)) << what;
  }
  EXPECT_EQ(Send(kLink1, init).type, Type::kError);
  EXPECT_TRUE(effects_.closes.empty()) << "a body that was not taken is no violation";
}

TEST_F(ShardTest, OnlyRankZeroCreatesKeys) {
  Message init = Make(Type::kInit, 2);
  init.extra = Encode(meta_);
  init.body = Floats({0, 0, 0, 0});
  EXPECT_EQ(ErrorOf(Send(kLink1, init)).code(), Code::kFailedPrecondition);
  EXPECT_EQ(Send(kLink0, init).type, Type::kExists);
}

// ---- creating keys ------------------------------------------------------------------------------

// A shard without the key `x`, for which workers have initial values.
class MakingTest : public ShardTest {
 protected:
  MakingTest() {
    meta_.name = CanonicalKey(0, "x");
    key_ = IdOf(meta_.name);
  }
  // Returns the number of the grant that a worker gets; 0: the worker waits.
  uint64_t Ask(LinkId link, uint64_t seq) {
    Message describe = Make(Type::kDescribe, seq);
    describe.flags = kMayMake;
    const Message answer = Send(link, describe);
    return answer.type == Type::kOk ? answer.number : 0;
  }
  Message Init(uint64_t seq, uint64_t grant, float value) {
    Message init = Make(Type::kInit, seq, grant);
    init.flags = kOverwrite;
    init.extra = Encode(meta_);
    init.body = Floats({value, value, value, value});
    return init;
  }
  void Kill(Rank rank, Epoch::Policy policy) {
    ++epoch_.number;
    epoch_.policy = policy;
    epoch_.workers[static_cast<size_t>(rank)].state = Epoch::State::kDead;
    effects_.Clear();
    shard_.On(epoch_, &effects_);
  }
};

TEST_F(MakingTest, RankZeroCreatesAndWhoWaitsFindsIt) {
  EXPECT_EQ(Ask(kLink1, 1), 0U);
  const uint64_t grant = Ask(kLink0, 2);
  ASSERT_NE(grant, 0U);
  EXPECT_EQ(Send(kLink0, Init(3, grant, 5)).type, Type::kOk);
  EXPECT_EQ(LastFor(kLink1).type, Type::kMeta);
  EXPECT_EQ(Value(), 5.0F);
}

TEST_F(MakingTest, APushThatFollowsARefusedOneIsRefusedToo) {
  meta_.staleness = 1;
  ASSERT_EQ(Send(kLink0, Init(2, Ask(kLink0, 1), 0)).type, Type::kOk);
  ExpectError(kLink0, Push(3, 2, 1), Code::kUnavailable);
  EXPECT_EQ(LastFor(kLink0).extra,
            "this worker's push of round 1 has failed, and round 2 follows it; push it again "
            "first");
  EXPECT_EQ(Send(kLink0, Push(4, 1, 1)).type, Type::kAccepted);
  EXPECT_EQ(Send(kLink0, Push(5, 2, 1)).type, Type::kAccepted);
  Send(kLink1, Make(Type::kAbstain, 1, 1));
  EXPECT_EQ(Send(kLink1, Push(2, 2, 2)).type, Type::kAccepted) << "it takes no part in round 1";
  EXPECT_EQ(chunk().version, 2U);
}

TEST_F(MakingTest, AStatusCountsRoundsWithoutTheWorkerBeforeItsPushes) {
  meta_.staleness = 2;
  ASSERT_EQ(Send(kLink0, Init(2, Ask(kLink0, 1), 0)).type, Type::kOk);
  Send(kLink1, Make(Type::kAbstain, 1, 1));
  EXPECT_EQ(Send(kLink1, Push(2, 2, 2)).type, Type::kAccepted);
  const Message reply = Send(kLink1, Make(Type::kStatus, 3));
  ASSERT_EQ(reply.type, Type::kStatusReply);
  EXPECT_EQ(DecodeChunkStatus(reply.extra).last_arrived, 2U);
}

TEST_F(MakingTest, UnderContinueTheLowestRankThatLivesCreates) {
  EXPECT_EQ(Ask(kLink1, 1), 0U);
  Kill(0, Epoch::Policy::kContinue);
  const Message told = LastFor(kLink1);
  ASSERT_EQ(told.type, Type::kOk) << "it waited, and its turn has come";
  EXPECT_EQ(Send(kLink1, Init(2, told.number, 6)).type, Type::kOk);
  EXPECT_EQ(Value(), 6.0F);
}

TEST_F(MakingTest, UnderOtherPoliciesNobodyCreatesInThePlaceOfADeadRankZero) {
  EXPECT_EQ(Ask(kLink1, 1), 0U);
  Kill(0, Epoch::Policy::kWait);
  EXPECT_EQ(LastFor(kLink1).type, Type{}) << "its next life may";
  Kill(0, Epoch::Policy::kFail);
  EXPECT_EQ(LastFor(kLink1).extra, "worker 0, which creates keys, is dead");
}

TEST_F(MakingTest, AWaitForAKeyOfAStoreThatItsCreatorHasClosedFailsAtOnce) {
  EXPECT_EQ(Ask(kLink1, 1), 0U);
  Send(kLink0, Make(Type::kClose, 2));
  const Message error = LastFor(kLink1);
  EXPECT_EQ(ErrorOf(error).code(), Code::kUnavailable);
  EXPECT_EQ(error.extra, "worker 0, which creates keys, has closed store 0");
}

TEST_F(MakingTest, AWorkerThatHasComeAgainWaitsForTheNextLifeOfRankZero) {
  epoch_.workers[0].state = Epoch::State::kDead;
  epoch_.workers[1].incarnation = 6;
  ++epoch_.number;
  shard_.On(epoch_, &effects_);
  constexpr LinkId kLater = 3;
  Greet(kLater, 1, 6);
  EXPECT_EQ(Ask(kLater, 1), 0U);
  EXPECT_EQ(LastFor(kLater).type, Type{}) << "it waits";
  epoch_.workers[0].state = Epoch::State::kLost;
  ++epoch_.number;
  shard_.On(epoch_, &effects_);
  EXPECT_EQ(LastFor(kLater).extra, "worker 0, which creates keys, is dead");
}

// Rank 0 restarts while the next rank creates the key; then that rank dies.
TEST_F(MakingTest, OneWorkerAtATimeCreatesAKey) {
  Kill(0, Epoch::Policy::kContinue);
  const uint64_t heirs = Ask(kLink1, 1);
  ASSERT_NE(heirs, 0U);
  EXPECT_EQ(Ask(kLink1, 1), heirs) << "its answer was lost";
  ++epoch_.number;
  epoch_.workers[0] = {8, Epoch::State::kAlive, ""};
  shard_.On(epoch_, &effects_);
  Greet(3, 0, 8);
  EXPECT_EQ(Ask(3, 1), 0U) << "the heir is at it";
  EXPECT_EQ(ErrorOf(Send(3, Init(2, heirs, 1))).code(), Code::kFailedPrecondition);
  Kill(1, Epoch::Policy::kContinue);
  const Message told = LastFor(3);
  ASSERT_EQ(told.type, Type::kOk);
  EXPECT_GT(told.number, heirs);
  EXPECT_EQ(Send(3, Init(3, told.number, 7)).type, Type::kOk);
  EXPECT_EQ(Value(), 7.0F);
}

TEST_F(MakingTest, GrantsHaveABoundAndEndWithTheirStore) {
  for (size_t i = 0; i < Options().parked_max; ++i) {
    key_ = IdOf(CanonicalKey(0, std::to_string(i)));
    EXPECT_NE(Ask(kLink0, 2 + i), 0U);
  }
  EXPECT_NE(Ask(kLink0, 20), 0U) << "asked for again";
  key_ = IdOf(CanonicalKey(1, "y"));
  EXPECT_EQ(Ask(kLink0, 21), 0U);
  EXPECT_EQ(ErrorOf(LastFor(kLink0)).code(), Code::kResourceExhausted);
  EXPECT_EQ(LastFor(kLink0).extra, "8 keys are being created at the server");
  Send(kLink0, Make(Type::kClose, 22));
  Send(kLink1, Make(Type::kClose, 1));
  Message describe = Make(Type::kDescribe, 23);
  describe.flags = kMayMake;
  describe.chunk = 1;
  EXPECT_EQ(Send(kLink0, describe).type, Type::kOk);
}

// A server without the key's chunk 0 does not know which worker may create the key.
TEST_F(MakingTest, ALaterGrantReplacesWhatAnEarlierOneHasWrittenAndNotTheOtherWayRound) {
  meta_.chunk_elements = 1024;
  meta_.shape = Shape({2048});
  const auto init = [&](uint64_t seq, uint64_t grant, float value) {
    Message message = Init(seq, grant, value);
    message.chunk = 1;
    message.body = Floats(std::vector<float>(1024, value));
    return message;
  };
  EXPECT_EQ(Send(kLink0, init(2, 0, 1)).type, Type::kOk) << "rank 0, without a grant";
  EXPECT_EQ(Send(kLink1, init(1, 2, 2)).type, Type::kOk);
  EXPECT_EQ(Send(kLink0, init(3, 1, 3)).type, Type::kExists);
  EXPECT_EQ(FirstOf(*shard_.FindChunk({key_, 1})), 2.0F);
}

TEST_F(ShardTest, AControlChangesEveryRoundFromItsOwnOn) {
  Message control = Make(Type::kControl, 2, 1);
  UpdateSpec spec{Optimizer::Create("test")->program().ToText(), false, {1.0}};
  control.extra = Encode(spec);
  const ControlRounds::Item item{key_, 2};
  auto items = std::make_shared<ControlRounds::Item>(item);
  control.body = {reinterpret_cast<const std::byte*>(items.get()), sizeof(item), items};
  EXPECT_EQ(Send(kLink0, control).type, Type::kOk);
  Send(kLink0, Push(3, 1, 1));
  Send(kLink1, Push(1, 1, 2));
  EXPECT_EQ(Value(), 3.0F) << "round 1 assigns";
  Send(kLink0, Push(4, 2, 1));
  Send(kLink1, Push(2, 2, 2));
  EXPECT_EQ(Value(), 6.0F) << "round 2 adds";
}

TEST_F(ShardTest, AWorkerWhoseProcessHasEndedOrThatHasLeftDoesNotComeBack) {
  EXPECT_FALSE(shard_.HaveLivingEnded());
  Message bye = Make(Type::kError, 0, static_cast<uint64_t>(Code::kCancelled));
  Send(kLink0, bye);
  shard_.Closed(kLink0);
  shard_.Ended(kLink1);
  shard_.Closed(kLink1);
  EXPECT_FALSE(shard_.HaveLivingEnded()) << "worker 0 has lost its connection";
  Greet(kLink0, 0, 4);
  bye.number = static_cast<uint64_t>(Code::kAborted);
  Send(kLink0, bye);
  EXPECT_TRUE(shard_.has_clients());
  shard_.Closed(kLink0);
  EXPECT_TRUE(shard_.HaveLivingEnded());
  EXPECT_FALSE(shard_.HaveAllLeft()) << "worker 1 has not";
  Greet(kLink1, 1, 5);
  EXPECT_FALSE(shard_.HaveLivingEnded()) << "it was another one";
  Send(kLink1, bye);
  shard_.Ended(kLink1);
  shard_.Closed(kLink1);
  EXPECT_TRUE(shard_.HaveAllLeft()) << "worker 1 has left before its process ended";
}

// A shard with two workers and a rule whose hyperparameter either worker may send with a push.
class HyperparameterTest : public ShardTest {
 protected:
  HyperparameterTest() {
    Message control = Make(Type::kControl, 2, 1);
    control.extra = Encode(UpdateSpec{Optimizer::Create("test")->program().ToText(), false, {1.0}});
    Send(kLink0, control);
  }
  Message With(Message push, const std::vector<double>& params) {
    push.flags |= kHasScalars;
    push.extra = EncodeScalars(params);
    return push;
  }
  // Returns the reply to a pull of the round.
  Message Pulled(uint64_t round) { return Send(kLink0, Make(Type::kPull, 90 + round, round)); }
};

TEST_F(HyperparameterTest, ThoseThatEveryWorkerChangesAreTaken) {
  Send(kLink1, With(Push(1, 1, 2), {3.0}));
  Send(kLink0, With(Push(3, 1, 1), {3.0}));
  EXPECT_EQ(Pulled(1).type, Type::kValue);
  EXPECT_EQ(Value(), 9.0F) << "three times the sum";
  Send(kLink1, With(Push(2, 2, 2), {1.0}));
  Send(kLink0, Push(4, 2, 1));
  EXPECT_EQ(Value(), 12.0F) << "that of the rule, said or not";
  Send(kLink1, Push(3, 3, 1));
  Send(kLink0, With(Push(5, 3, 1), {2.0}));
  EXPECT_EQ(Value(), 16.0F) << "the lowest rank alone";
}

TEST_F(HyperparameterTest, AnotherRankThatDiffersIsToldWhoDecides) {
  for (const bool is_last : {false, true}) {
    const uint64_t round = is_last ? 2 : 1;
    if (!is_last) Send(kLink1, With(Push(round, round, 2), {0.5}));
    Send(kLink0, Push(2 + round, round, 1));
    if (is_last) Send(kLink1, With(Push(round, round, 2), {0.5}));
    const Message reply = Pulled(round);
    ASSERT_EQ(reply.type, Type::kError);
    EXPECT_STREQ(
        ErrorOf(reply).what(),
        "rescale_grad is 1 on worker 0 and 0.5 on worker 1; worker 0 decides for all: change it "
        "there, or on every worker before the same push");
    EXPECT_EQ(Value(), 0.0F) << "nothing has been updated";
  }
  Message ask = Make(Type::kPull, 80, 2);
  ask.flags = kNoBody | kAnyway;
  EXPECT_EQ(Send(kLink1, ask).type, Type::kValue) << "whether the next round can come";
  Send(kLink1, Push(3, 3, 2));
  Send(kLink0, Push(5, 3, 1));
  EXPECT_EQ(Pulled(3).type, Type::kValue);
  EXPECT_EQ(Value(), 3.0F) << "the next round goes on";
}

TEST_F(HyperparameterTest, ThoseOfAnotherProgramAreAnError) {
  Send(kLink1, With(Push(1, 1, 2), {0.5, 1.0}));
  Send(kLink0, Push(3, 1, 1));
  EXPECT_STREQ(ErrorOf(Pulled(1)).what(),
               "worker 1 has an optimizer of 2 hyperparameters; that of worker 0, which set it for "
               "all, has 1");
}

TEST_F(HyperparameterTest, AnotherProgramWithAsManyHyperparametersIsAnError) {
  const UpdateSpec rule{Optimizer::Create("test")->program().ToText(), false, {1.0}};
  const UpdateSpec other{.program = rule.program, .multi_precision = true, .params = {1.0}};
  for (const UpdateSpec& spec : {rule, other}) {
    const bool is_same = spec == rule;
    const uint64_t round = is_same ? 1 : 2;
    Message push = With(Push(round, round, 2), {1.0});
    push.flags |= kOfRule;
    push.extra += EncodeRuleDigest(spec.Digest());
    Send(kLink1, push);
    Send(kLink0, Push(2 + round, round, 1));
    const Message reply = Pulled(round);
    EXPECT_EQ(reply.type, is_same ? Type::kValue : Type::kError);
    if (is_same) continue;
    EXPECT_STREQ(ErrorOf(reply).what(),
                 "worker 1 has another optimizer than worker 0, which set 'test' for all: set the "
                 "same one on every worker");
  }
}

TEST_F(HyperparameterTest, ADigestThatIsCutShortClosesTheSession) {
  Message push = Push(1, 1, 2);
  push.flags |= kHasScalars | kOfRule;
  push.extra = "short";
  ExpectViolation(kLink1, push);
}

TEST_F(ShardTest, ThoseOfAWorkerWithoutARuleAreAnErrorThatSaysWhoSetsIt) {
  Message push = Push(1, 1, 2);
  push.flags |= kHasScalars;
  push.extra = EncodeScalars({0.5});
  Send(kLink1, push);
  Send(kLink0, Push(3, 1, 1));
  EXPECT_STREQ(ErrorOf(Send(kLink0, Make(Type::kPull, 91, 1))).what(),
               "worker 1 has set an optimizer, and worker 0, which defines it for all, has set "
               "none: call set_optimizer there, before this push, or here again where worker 0 is "
               "dead");
  EXPECT_EQ(Value(), 0.0F) << "nothing has been assigned";
  Send(kLink1, Push(2, 2, 2));
  Send(kLink0, Push(4, 2, 1));
  EXPECT_EQ(Value(), 3.0F) << "the next round goes on";
}

TEST_F(ShardTest, AWorkerWithoutARuleAndWithoutHyperparametersHasSetAnOptimizerAllTheSame) {
  Message push = Push(1, 1, 2);
  push.flags |= kHasScalars;
  push.extra = EncodeScalars({});
  Send(kLink1, push);
  Send(kLink0, Push(3, 1, 1));
  EXPECT_EQ(ErrorOf(Send(kLink0, Make(Type::kPull, 91, 1))).code(), Code::kInvalidArgument);
  EXPECT_EQ(Value(), 0.0F) << "nothing has been assigned";
}

// The norm of a part of a value differs from the norm of the value.
TEST_F(ShardTest, AProgramWithAReductionIsRefusedWhereAKeyHasParts) {
  meta_.name = CanonicalKey(0, "parts");
  meta_.shape = {1028};
  meta_.chunk_elements = 1024;
  key_ = IdOf(meta_.name);
  const uint32_t tail = 1;
  Message init = Make(Type::kInit, 2);
  init.chunk = tail;
  init.extra = Encode(meta_);
  init.body = Floats({0, 0, 0, 0});
  ASSERT_EQ(Send(kLink0, init).type, Type::kOk);
  Message control = Make(Type::kControl, 3, 1);
  control.key = {};
  control.extra = Encode(
      UpdateSpec{.program = "program norm\na = reduce_sum sum\nw = add value a\nvalue <- w\n"});
  const Message refused = Send(kLink0, control);
  ASSERT_EQ(refused.type, Type::kError);
  EXPECT_EQ(ErrorOf(refused).code(), Code::kFailedPrecondition);
  EXPECT_NE(refused.extra.find("'parts' lies in 2 parts"), std::string::npos) << refused.extra;
  EXPECT_TRUE(shard_.FindKey(key_)->pending.empty()) << "nothing has changed";
  Send(kLink0, Make(Type::kDelete, 4));
  control.seq = 5;
  ASSERT_EQ(Send(kLink0, control).type, Type::kOk);
  init.seq = 6;
  EXPECT_EQ(ErrorOf(Send(kLink0, init)).code(), Code::kFailedPrecondition);
  EXPECT_EQ(shard_.FindKey(key_), nullptr);
  meta_.layout = Layout::kWhole;
  init.chunk = 0;
  init.seq = 7;
  init.extra = Encode(meta_);
  init.body = Floats(std::vector<float>(1028, 2));
  EXPECT_EQ(Send(kLink0, init).type, Type::kOk);
  EXPECT_EQ(shard_.FindKey(key_)->pending.size(), 1U);
}

// A shard with an asynchronous key of value 5, and a CONTROL that adds later pushes to it.
class AsyncControlTest : public ShardTest {
 protected:
  AsyncControlTest() {
    meta_.mode = KeyMeta::Mode::kAsync;
    meta_.name = CanonicalKey(0, "async");
    key_ = IdOf(meta_.name);
    Message init = Make(Type::kInit, 2);
    init.extra = Encode(meta_);
    init.body = Floats({0, 0, 0, 0});
    EXPECT_EQ(Send(kLink0, init).type, Type::kOk);
    Send(kLink1, Push(1, 1, 5));
    Message control = Make(Type::kControl, 3, 1);
    control.extra = Encode(UpdateSpec{Optimizer::Create("test")->program().ToText(), false, {1.0}});
    EXPECT_EQ(Send(kLink0, control).type, Type::kOk);
    Send(kLink1, Push(2, 2, 2));
    EXPECT_EQ(Value(), 7.0F);
  }
};

TEST_F(AsyncControlTest, AWithdrawUndoesItAlsoWhereAPushHasUsedIt) {
  Send(kLink0, Make(Type::kWithdraw, 4, 1));
  Send(kLink1, Push(3, 3, 3));
  EXPECT_EQ(Value(), 3.0F) << "the rule before assigns";
}

// A sender that loses the head between the commit and its notice fails in set_optimizer and
// withdraws the rule.
TEST_F(AsyncControlTest, AWithdrawUndoesItAlsoWhereItIsCommitted) {
  ++epoch_.number;
  epoch_.commits = {{0, 4, 1}};
  shard_.On(epoch_, &effects_);
  Send(kLink1, Push(3, 3, 1));
  EXPECT_EQ(Value(), 8.0F);
  Send(kLink0, Make(Type::kWithdraw, 4, 1));
  Send(kLink1, Push(4, 4, 3));
  EXPECT_EQ(Value(), 3.0F) << "the rule before assigns";
}

TEST_F(AsyncControlTest, TheDeathOfItsSenderUndoesItUnlessItIsCommitted) {
  Shard other = shard_;
  ++epoch_.number;
  epoch_.workers[0].state = Epoch::State::kDead;
  shard_.On(epoch_, &effects_);
  Send(kLink1, Push(3, 3, 3));
  EXPECT_EQ(Value(), 3.0F);
  epoch_.commits = {{0, 4, 1}};
  other.On(epoch_, &effects_);
  other.Received(kLink1, Push(3, 3, 3), &effects_);
  EXPECT_EQ(FirstOf(*other.FindChunk({key_, 0})), 10.0F);
}

TEST_F(AsyncControlTest, ItStaysAfterItsSendersNextPush) {
  Send(kLink0, Push(4, 1, 1));
  EXPECT_EQ(Value(), 8.0F);
  EXPECT_FALSE(chunk().former);
}

// ---- closed stores ------------------------------------------------------------------------------

TEST_F(ShardTest, TheKeysOfAStoreAreFreedWhenEveryWorkerHasClosedIt) {
  EXPECT_EQ(Send(kLink0, Make(Type::kClose, 2)).type, Type::kOk);
  EXPECT_NE(shard_.FindKey(key_), nullptr);
  Message other = Make(Type::kClose, 1);
  other.chunk = 1;
  EXPECT_EQ(Send(kLink1, other).type, Type::kOk);
  EXPECT_NE(shard_.FindKey(key_), nullptr) << "another store";
  EXPECT_EQ(Send(kLink1, Make(Type::kClose, 2)).type, Type::kOk);
  EXPECT_EQ(shard_.FindKey(key_), nullptr);
  EXPECT_EQ(pool_.bytes_in_use(), 0U);
  EXPECT_EQ(Send(kLink1, Make(Type::kPull, 3)).type, Type::kError);
}

TEST_F(ShardTest, AWorkerThatIsGoneHoldsNoStoreOpen) {
  Send(kLink0, Make(Type::kClose, 2));
  ++epoch_.number;
  epoch_.workers[1].state = Epoch::State::kLeft;
  shard_.On(epoch_, &effects_);
  EXPECT_EQ(shard_.FindKey(key_), nullptr);
}

TEST_F(ShardTest, AWorkerThatWillComeBackHoldsAStoreOpen) {
  epoch_.policy = Epoch::Policy::kWait;
  Send(kLink0, Make(Type::kClose, 2));
  ++epoch_.number;
  epoch_.workers[1].state = Epoch::State::kDead;
  shard_.On(epoch_, &effects_);
  EXPECT_NE(shard_.FindKey(key_), nullptr);
}

// The launcher will restart the worker, so the worker is dead and not lost, under any policy.
TEST_F(ShardTest, AWorkerThatWillComeBackHoldsAStoreOpenUnderContinueToo) {
  epoch_.policy = Epoch::Policy::kContinue;
  Send(kLink0, Make(Type::kClose, 2));
  ++epoch_.number;
  epoch_.workers[1].state = Epoch::State::kDead;
  shard_.On(epoch_, &effects_);
  EXPECT_NE(shard_.FindKey(key_), nullptr);
  ++epoch_.number;
  epoch_.workers[1].state = Epoch::State::kLost;
  shard_.On(epoch_, &effects_);
  EXPECT_EQ(shard_.FindKey(key_), nullptr);
}

TEST_F(ShardTest, TheCloseOfALifeThatIsOverIsForgotten) {
  epoch_.policy = Epoch::Policy::kWait;
  Send(kLink0, Push(2, 1, 1));
  Send(kLink1, Make(Type::kClose, 1));
  ++epoch_.number;
  epoch_.workers[1].state = Epoch::State::kDead;
  shard_.On(epoch_, &effects_);
  EXPECT_EQ(Send(kLink0, Make(Type::kPull, 3, 1)).type, Type{}) << "the next life may push";
  EXPECT_EQ(Send(kLink0, Make(Type::kClose, 4)).type, Type::kOk);
  EXPECT_NE(shard_.FindKey(key_), nullptr);
}

TEST_F(ShardTest, AWaitForAWorkerThatHasClosedTheStoreFailsAtOnceAndNamesBoth) {
  Send(kLink0, Push(2, 1, 1));
  Send(kLink1, Push(1, 1, 1));
  Send(kLink0, Push(3, 2, 1));
  EXPECT_EQ(Send(kLink0, Make(Type::kPull, 4, 2)).type, Type{});
  EXPECT_EQ(Send(kLink1, Make(Type::kClose, 2)).type, Type::kOk);
  const Message error = LastFor(kLink0);
  ASSERT_EQ(error.type, Type::kError);
  EXPECT_EQ(ErrorOf(error).code(), Code::kUnavailable);
  EXPECT_EQ(error.extra, "worker 1 closed store 0 after round 1; round 2 needs it");
  EXPECT_EQ(Send(kLink0, Make(Type::kPull, 5, 2)).type, Type::kError) << "and a later one";
  EXPECT_EQ(Send(kLink0, Make(Type::kPull, 6, 1)).type, Type::kValue) << "that round is whole";
}

TEST_F(ShardTest, UnderContinueRoundsGoOnWithoutAWorkerThatHasClosedTheStore) {
  ++epoch_.number;
  epoch_.policy = Epoch::Policy::kContinue;
  shard_.On(epoch_, &effects_);
  Send(kLink0, Push(2, 1, 1));
  Send(kLink1, Make(Type::kClose, 1));
  EXPECT_EQ(chunk().version, 1U);
  EXPECT_EQ(Value(), 1.0F);
  Send(kLink0, Push(3, 2, 5));
  EXPECT_EQ(chunk().version, 2U);
}

TEST_F(ShardTest, ABarrierOfAStoreThatAWorkerHasClosedFailsAndThatOfAnotherStoreDoesNot) {
  Message close = Make(Type::kClose, 1);
  close.chunk = 3;
  Send(kLink1, close);
  uint64_t seq = 1;
  for (const uint32_t store : {3U, 2U}) {
    key_ = IdOf(InternalKey(store, "barrier"));
    Message push = Make(Type::kPush, ++seq, 1);
    push.flags = kBarrierKey;
    push.need = store;
    EXPECT_EQ(Send(kLink0, push).type, Type::kAccepted);
    const Message answer = Send(kLink0, Make(Type::kPull, ++seq, 1));
    EXPECT_EQ(answer.type, store == 3 ? Type::kError : Type{});
  }
}

TEST_F(ShardTest, AStoreThatEveryWorkerHasClosedIsOverForALaterLife) {
  epoch_.policy = Epoch::Policy::kWait;
  Send(kLink0, Make(Type::kClose, 2));
  Send(kLink1, Make(Type::kClose, 1));
  ASSERT_EQ(shard_.FindKey(key_), nullptr);
  ++epoch_.number;
  epoch_.workers[0].incarnation = 8;
  shard_.On(epoch_, &effects_);
  Greet(3, 0, 8);
  Message describe = Make(Type::kDescribe, 1);
  describe.flags = kMayMake;
  Message init = Make(Type::kInit, 2);
  init.extra = Encode(meta_);
  init.body = Floats({0, 0, 0, 0});
  Message barrier = Make(Type::kPush, 3, 1);
  barrier.key = IdOf(InternalKey(0, "barrier"));
  barrier.flags = kBarrierKey;
  for (const Message& message : {describe, init, barrier}) {
    const Message error = Send(3, message);
    ASSERT_EQ(error.type, Type::kError);
    EXPECT_EQ(ErrorOf(error).code(), Code::kFailedPrecondition);
    EXPECT_EQ(error.extra, "store 0 is over: every worker had closed it, and its keys are gone");
  }
}

TEST_F(ShardTest, WithoutAWorkerTheLastValuesStay) {
  ++epoch_.number;
  for (Epoch::Seat& worker : epoch_.workers) worker.state = Epoch::State::kLeft;
  shard_.On(epoch_, &effects_);
  EXPECT_NE(shard_.FindKey(key_), nullptr);
}

TEST_F(ShardTest, AWelcomeSaysIfTheJobHasBegun) {
  const auto greeted = [&](LinkId link) { return DecodeWelcome(Greet(link, 0, 4).extra).rejoined; };
  Message barrier = Make(Type::kPush, 2, 1);
  barrier.key = IdOf(InternalKey(0, "barrier"));
  barrier.flags = kBarrierKey;
  EXPECT_EQ(Send(kLink0, barrier).type, Type::kAccepted);
  EXPECT_EQ(Send(kLink0, Push(3, 2, 1)).type, Type::kError);
  EXPECT_FALSE(greeted(11)) << "no push of a key was accepted";
  EXPECT_EQ(Send(11, Push(4, 1, 1)).type, Type::kAccepted);
  EXPECT_TRUE(greeted(12));
  EXPECT_EQ(Send(12, Make(Type::kDelete, 5)).type, Type::kOk);
  EXPECT_TRUE(greeted(13)) << "also if the key is deleted";
}

TEST_F(ShardTest, ABarrierMaySayThatTheJobHasBegun) {
  Message barrier = Make(Type::kPush, 2, 1);
  barrier.key = IdOf(InternalKey(0, "barrier"));
  barrier.flags = kBarrierKey | kBegins;
  EXPECT_EQ(Send(kLink0, barrier).type, Type::kAccepted);
  EXPECT_TRUE(DecodeWelcome(Greet(11, 0, 4).extra).rejoined);
}

TEST_F(ShardTest, ALaterLifeGetsTheErrorsOfTheBarriersThatItPassesAgain) {
  const Error failure(Code::kNotFound, "no snapshot");
  key_ = IdOf(InternalKey(0, "barrier"));
  uint64_t seq = 1;
  for (const uint64_t round : {1U, 2U, 3U}) {
    for (const LinkId link : {kLink0, kLink1}) {
      Message push = Make(Type::kPush, ++seq, round);
      push.flags = kBarrierKey;
      if (round != 2 && link == kLink0) {
        push.flags |= kFails;
        push.extra = EncodeFailure(failure);
      }
      EXPECT_EQ(Send(link, push).type, Type::kAccepted);
    }
  }
  ++epoch_.number;
  epoch_.workers[1].incarnation = 8;
  shard_.On(epoch_, &effects_);
  Greet(3, 1, 8);
  seq = 0;
  for (const uint64_t round : {1U, 2U, 3U}) {
    Message push = Make(Type::kPush, ++seq, round);
    push.flags = kBarrierKey;
    EXPECT_EQ(Send(3, push).type, Type::kAccepted);
    Message pull = Make(Type::kPull, ++seq, round);
    pull.flags = kNoBody;
    const Message answer = Send(3, pull);
    EXPECT_EQ(answer.type, round == 2 ? Type::kValue : Type::kError) << round;
    EXPECT_EQ(answer.extra, round == 2 ? "" : "worker 0: no snapshot");
  }
}

TEST_F(ShardTest, AnUncommittedControlOfADeadSenderIsDropped) {
  Message control = Make(Type::kControl, 2, 1);
  control.extra = Encode(UpdateSpec{Optimizer::Create("test")->program().ToText(), false, {1.0}});
  Send(kLink0, control);
  ASSERT_EQ(shard_.FindKey(key_)->pending.size(), 1U);
  ++epoch_.number;
  epoch_.workers[0].incarnation = 8;
  shard_.On(epoch_, &effects_);
  EXPECT_TRUE(shard_.FindKey(key_)->pending.empty());
}

TEST_F(ShardTest, AControlOfALaterLifeCountsInTheKeysThatItLists) {
  Send(kLink0, Push(2, 1, 1));
  epoch_.number = 2;
  epoch_.workers[0].incarnation = 6;
  shard_.On(epoch_, &effects_);
  constexpr LinkId kLater = 3;
  Greet(kLater, 0, 6);
  Message control = Make(Type::kControl, 1, 1);
  control.flags = kOnlyListed;
  control.extra = Encode(UpdateSpec{Optimizer::Create("test")->program().ToText(), false, {1.0}});
  EXPECT_EQ(Send(kLater, control).type, Type::kOk);
  Send(kLink1, Push(1, 1, 2));
  EXPECT_EQ(Value(), 3.0F) << "a round that the earlier life has pushed in";
  EXPECT_EQ(Send(kLater, Make(Type::kAbstain, 2, 1)).type, Type::kOk);
  control.seq = 3;
  control.number = 2;
  const auto item = std::make_shared<ControlRounds::Item>(ControlRounds::Item{key_, 2});
  control.body = {reinterpret_cast<const std::byte*>(item.get()), sizeof *item, item};
  EXPECT_EQ(Send(kLater, control).type, Type::kOk);
  Send(kLater, Push(4, 2, 1));
  Send(kLink1, Push(2, 2, 1));
  EXPECT_EQ(Value(), 5.0F) << "from its first own round on";
}

// With kOnlyListed, a rule applies to an existing key only if a CONTROL lists the key.  The state
// of the sender on this server, and pushes of its earlier incarnation, change nothing.
TEST_F(ShardTest, WhatALaterLifeHasNotListedDoesNotCountWhereRoundsGoOnWithoutIt) {
  Send(kLink0, Push(2, 1, 1));
  epoch_.number = 2;
  epoch_.policy = Epoch::Policy::kContinue;
  epoch_.workers[0].incarnation = 6;
  shard_.On(epoch_, &effects_);
  constexpr LinkId kLater = 3;
  Greet(kLater, 0, 6);
  Message control = Make(Type::kControl, 1, 1);
  control.flags = kOnlyListed;
  control.extra = Encode(UpdateSpec{Optimizer::Create("test")->program().ToText(), false, {1.0}});
  EXPECT_EQ(Send(kLater, control).type, Type::kOk);
  Send(kLater, Make(Type::kAbstain, 2, 1));
  epoch_.number = 3;
  epoch_.workers[0].state = Epoch::State::kDead;
  epoch_.commits = {{0, 6, 1}};
  shard_.On(epoch_, &effects_);
  Send(kLink1, Push(1, 1, 2));
  EXPECT_EQ(Value(), 3.0F);
  Send(kLink1, Push(2, 2, 1));
  EXPECT_EQ(Value(), 1.0F);
}

TEST_F(ShardTest, AsManyControlsWaitForARoundAsThereIsRoomFor) {
  const auto item = std::make_shared<ControlRounds::Item>(ControlRounds::Item{key_, 100});
  const size_t room = ShardOptions().rules_max;
  for (uint64_t generation = 1; generation <= room + 1; ++generation) {
    Message control = Make(Type::kControl, generation + 1, generation);
    control.body = {reinterpret_cast<const std::byte*>(item.get()), sizeof *item, item};
    control.extra = Encode(UpdateSpec());
    shard_.Header(kLink0, control.seq);
    const Message reply = Send(kLink0, control);
    ASSERT_EQ(reply.type, generation <= room ? Type::kOk : Type::kError) << generation;
  }
  EXPECT_EQ(shard_.FindKey(key_)->pending.size(), room);
}

TEST_F(ShardTest, AnAbstentionCompletesARound) {
  Send(kLink0, Push(2, 1, 1));
  Send(kLink1, Make(Type::kAbstain, 1, 1));
  EXPECT_EQ(chunk().version, 1U);
  EXPECT_EQ(Value(), 1.0F);
}

TEST_F(ShardTest, ACancelledPullIsFreedAndTellsWhoIsMissing) {
  Send(kLink0, Push(2, 1, 1));
  Send(kLink0, Make(Type::kPull, 3, 1));
  const Message ok = Send(kLink0, Make(Type::kCancel, 4, 3));
  EXPECT_EQ(ok.type, Type::kOk);
  EXPECT_EQ(DecodeChunkStatus(ok.extra).missing, std::vector<Rank>{1});
  EXPECT_TRUE(chunk().parked.empty());
}

// A worker that died within a step asks which keys its former incarnation pushed.
TEST_F(ShardTest, AStatusHasTheStepOfTheAskingRanksLastPush) {
  const auto in_step = [&](Message push, const PushStep& step) {
    push.flags |= kInStep;
    push.extra = Encode(step);
    return push;
  };
  uint64_t seq = 100;
  const auto step_at = [&](LinkId link) {
    Message status = Make(Type::kStatus, ++seq);
    status.flags = kInStep;
    return DecodeChunkStatus(Send(link, status).extra).step;
  };
  EXPECT_EQ(step_at(kLink0), std::nullopt) << "no push has had a step";
  Send(kLink0, in_step(Push(2, 1, 1), {1, 5}));
  EXPECT_EQ(step_at(kLink0), (PushStep{1, 5}));
  EXPECT_EQ(step_at(kLink1), PushStep{}) << "of another rank";
  Send(kLink0, in_step(Push(3, 1, 1), {2, 5}));
  EXPECT_EQ(step_at(kLink0), (PushStep{1, 5})) << "a push that did not count";
  Send(kLink1, in_step(Push(1, 1, 2), {1, 4}));
  EXPECT_EQ(step_at(kLink1), (PushStep{1, 4})) << "the push that has completed the round";
  Send(kLink0, Push(4, 2, 1));
  EXPECT_EQ(step_at(kLink0), PushStep{}) << "a push of no step";
  EXPECT_EQ(DecodeChunkStatus(Send(kLink0, Make(Type::kStatus, ++seq)).extra).step, std::nullopt)
      << "nobody has asked";
}

TEST_F(ShardTest, AStatusSaysThatNoStepIsRepeatedWhereRoundsGoOnWithoutTheDead) {
  Message push = Push(2, 1, 1);
  push.flags |= kInStep;
  push.extra = Encode(PushStep{1, 5});
  Send(kLink0, push);
  epoch_.number = 2;
  epoch_.policy = Epoch::Policy::kContinue;
  shard_.On(epoch_, &effects_);
  Message status = Make(Type::kStatus, 3);
  status.flags = kInStep;
  EXPECT_EQ(DecodeChunkStatus(Send(kLink0, status).extra).step, (PushStep{1, 0}));
}

TEST_F(ShardTest, APushMayHaveAStepAndHyperparameters) {
  Message push = Push(2, 1, 1);
  push.flags |= kInStep | kHasScalars;
  push.extra = Encode(PushStep{3, 2}) + EncodeScalars({});
  Send(kLink0, push);
  EXPECT_EQ(chunk().steps.at(0), (PushStep{3, 2}));
  push = Push(3, 2, 1);
  push.flags |= kInStep;
  push.extra = Encode(PushStep{3, 2}).substr(0, 7);
  ExpectViolation(kLink0, push);
}

}  // namespace
}  // namespace tkv
