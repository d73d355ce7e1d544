#include "tests/client_fixture.h"

namespace tkv {
namespace {

using test::Of;

class SnapshotClientTest : public test::ClientTest {
 protected:
  void AnswerCut(const Message& cut, uint64_t version, uint64_t updates) {
    ChunkState state;
    state.updates = updates;
    Message reply = Reply(cut, Type::kValue, version);
    reply.flags = kNoBody;
    reply.extra = Encode(state);
    Receive(reply);
  }
  // Returns the request by which a load restores the key.
  Operation::Restore Restore() {
    Operation::Restore restore;
    restore.states = std::make_shared<const std::vector<ChunkState>>(2);
    restore.value.bytes = {bytes_.data(), bytes_.size(), nullptr};
    restore.value.ends = {1024 * 4, 2000 * 4};
    return restore;
  }
  // Makes the key, and returns the two messages by which a load restores it.
  std::vector<Message> RestoreInStep(PushStep step) {
    MakeKey();
    Operation::Restore restore = Restore();
    restore.step = step;
    Start(std::move(restore), "load", meta_.name);
    std::vector<Message> sent = Sent();
    EXPECT_EQ(sent.size(), 2U);
    return sent;
  }
  OpId BeginRead(uint64_t part) {
    Operation::Read read;
    read.meta = std::make_shared<const KeyMeta>(meta_);
    read.states = std::make_shared<const std::vector<ChunkState>>(2);
    read.part = part;
    read.pull.out = {out_.data(), out_.size(), nullptr};
    return Start(std::move(read), "save", meta_.name);
  }
};

TEST_F(SnapshotClientTest, ThePushAfterACutLeavesWhenEveryChunkIsKept) {
  MakeKey();
  Begin(Operation::Push{}, "push");
  AnswerAll(Sent(), Type::kAccepted, 1);
  const OpId cut = Begin(Operation::Cut{}, "save");
  Begin(Operation::Push{}, "push");
  const auto sent = Sent();
  ASSERT_EQ(sent.size(), 2U);
  for (const Message& message : sent) {
    EXPECT_EQ(message.type, Type::kPull);
    EXPECT_EQ(message.flags & (kNoBody | kCut), kNoBody | kCut);
    EXPECT_EQ(message.number, 1U);
  }
  AnswerCut(sent[0], 1, 4);
  EXPECT_TRUE(Sent().empty());
  AnswerCut(sent[1], 1, 5);
  EXPECT_EQ(Of(Type::kPush, Sent()).size(), 2U);
  for (const Outcome& outcome : client_.TakeOutcomes()) {
    if (outcome.op != cut) continue;
    EXPECT_EQ(outcome.round, 1U);
    const auto* const kept = outcome.As<Outcome::Cut>();
    ASSERT_TRUE(kept != nullptr);
    EXPECT_EQ(kept->states->at(0).updates, 4U);
    EXPECT_EQ(kept->states->at(1).updates, 5U);
  }
}

TEST_F(SnapshotClientTest, ACutThatIsRefusedLeavesTheKeyAsItIs) {
  MakeKey();
  const OpId cut = Begin(Operation::Cut{}, "export_rows");
  for (const Message& sent : Sent()) {
    Receive(ErrorReply(sent.seq, Code::kFailedPrecondition, "worker 1 is saving"));
  }
  EXPECT_EQ(FailureOf(cut)->code(), Code::kFailedPrecondition);
  Begin(Operation::Push{}, "push");
  EXPECT_EQ(Of(Type::kPush, Sent()).size(), 2U);
}

TEST_F(SnapshotClientTest, AReadHoldsNothingBackAndOutlivesItsKey) {
  MakeKey();
  BeginRead(ChunkState::kValue);
  const auto reads = Sent();
  ASSERT_EQ(reads.size(), 2U);
  EXPECT_EQ(reads[0].flags, kOfCut);
  Begin(Operation::Push{}, "push");
  EXPECT_EQ(Of(Type::kPush, Sent()).size(), 2U);
  const Block landing = client_.Landing(link_, [&] {
    Message value = Reply(reads[1], Type::kValue);
    value.body.size = 976 * 4;
    return value;
  }());
  EXPECT_EQ(landing.data, out_.data() + 1024 * 4);
  EXPECT_EQ(landing.size, 976U * 4);
}

TEST_F(SnapshotClientTest, APartOfAnotherSizeIsAnError) {
  MakeKey();
  const OpId read = BeginRead(ChunkState::kValue);
  const auto reads = Sent();
  Message value = Reply(reads[0], Type::kValue);
  value.body.size = 12;
  EXPECT_FALSE(client_.Landing(link_, value));
  Receive(value);
  EXPECT_EQ(FailureOf(read)->code(), Code::kInternal);
}

TEST_F(SnapshotClientTest, ARestoreWaitsForPushesAndHoldsBackLaterOnes) {
  MakeKey();
  Begin(Operation::Push{}, "push");
  const auto pushes = Sent();
  const OpId id = Start(Restore(), "load", meta_.name);
  Begin(Operation::Push{}, "push");
  EXPECT_TRUE(Sent().empty());
  AnswerAll(pushes, Type::kAccepted, 1);
  const auto sent = Sent();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].type, Type::kRestore);
  EXPECT_EQ(sent[1].body.size, 976U * 4);
  AnswerAll(sent, Type::kOk, 1);
  EXPECT_EQ(Of(Type::kPush, Sent()).size(), 2U);
  EXPECT_FALSE(FailureOf(id));
}

TEST_F(SnapshotClientTest, ARestoreHasTheStepForAServerThatTakesIt) {
  protocol_.features = kStepsFeature | kRestoresStepsFeature;
  for (const Message& restore : RestoreInStep({7, 0})) {
    EXPECT_EQ(restore.flags, kInStep);
    EXPECT_EQ(restore.extra, Encode(PushStep{7, 0}) + Encode(ChunkState()));
  }
}

TEST_F(SnapshotClientTest, ARestoreHasNoStepForAnOlderServer) {
  protocol_.features = kStepsFeature;
  for (const Message& restore : RestoreInStep({7, 0})) {
    EXPECT_EQ(restore.flags, 0);
    EXPECT_EQ(restore.extra, Encode(ChunkState()));
  }
}

TEST_F(SnapshotClientTest, TheBaseAfterALoadComesWithTheStep) {
  protocol_.features = kStepsFeature;
  MakeKey();
  Begin(Operation::FindBase{}, "load");
  const auto asked = Sent();
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked[0].flags, kInStep);
  ChunkStatus status;
  status.base = 30;
  status.step = PushStep{40, 0};
  Message reply = Reply(asked[0], Type::kStatusReply);
  reply.extra = Encode(status);
  Receive(reply);
  EXPECT_EQ(client_.BaseOf(meta_.name), 30U);
  EXPECT_EQ(client_.FormerStepOf(meta_.name), (PushStep{40, 0}));
}

TEST_F(SnapshotClientTest, AReadThatIsTooLateIsGivenUp) {
  MakeKey();
  const OpId read = BeginRead(ChunkState::kValue);
  Sent();
  After(700 * kSecond);
  const auto cancels = Of(Type::kCancel, Sent());
  ASSERT_EQ(cancels.size(), 2U);
  AnswerAll(cancels, Type::kOk);
  EXPECT_EQ(FailureOf(read)->code(), Code::kDeadlineExceeded);
  Begin(Operation::Push{}, "push");
  EXPECT_EQ(Of(Type::kPush, Sent()).size(), 2U);
}

TEST_F(SnapshotClientTest, AStatusThatComesAfterItsKeyWasDeletedHarmsNothing) {
  MakeKey();
  const OpId stats = Begin(Operation::Stats{}, "table_stats");
  const auto asked = Of(Type::kStatus, Sent());
  ASSERT_FALSE(asked.empty());
  Begin(Operation::Delete{}, "delete");
  AnswerAll(Of(Type::kDelete, Sent()), Type::kOk);
  EXPECT_FALSE(client_.Knows(meta_.name));
  Message reply = Reply(asked[0], Type::kStatusReply);
  reply.extra = Encode(ChunkStatus{});
  Receive(reply);
  const auto error = FailureOf(stats);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kUnimplemented);
}

}  // namespace
}  // namespace tkv
