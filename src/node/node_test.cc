// An authenticated but hostile peer can do no harm to a server: it can only end its own session.

#include "node/node.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <numeric>

#include "base/mix.h"
#include "rows/memory_disk.h"

namespace tkv {
namespace {

// A server node with a key of four floats and two workers, played by the test in raw frames.
class HostilePeerTest : public ::testing::Test {
 protected:
  explicit HostilePeerTest(ShardOptions options = Shard())
      : node_(Member(), std::move(options), &pool_) {
    node_.Start(0);
    const LinkId head = node_.TakeOutput().dials.at(0).link;
    node_.Opened(head, 0);
    Message welcome;
    welcome.type = Type::kWelcome;
    welcome.extra = Encode(Welcome{.rank = 0, .incarnation = 9});
    Epoch epoch;
    epoch.number = 1;
    epoch.workers = {{4, Epoch::State::kAlive}, {5, Epoch::State::kAlive}};
    epoch.servers = {{9, Epoch::State::kAlive}};
    epoch.placement = {1, 1, {}};
    Message news;
    news.type = Type::kEpoch;
    news.number = 1;
    news.extra = Encode(epoch);
    Deliver(head, {welcome, news});
    hostile_ = Greet(0, 4);
    other_ = Greet(1, 5);
    meta_.name = CanonicalKey(0, "w");
    meta_.shape = Shape({4});
    Message init = Make(Type::kInit, 1);
    init.extra = Encode(meta_);
    init.body = values_;
    EXPECT_TRUE(Deliver(hostile_, {init}));
    bytes_before_ = pool_.bytes_in_use();
  }
  static MemberOptions Member() {
    MemberOptions options;
    options.role = Role::kServer;
    options.rank = 0;
    return options;
  }
  static ShardOptions Shard() {
    ShardOptions options;
    options.parked_max = 100;
    options.chunk_bytes_max = size_t{1} << 20;
    options.disk = std::make_shared<MemoryDisk>();
    return options;
  }
  Message Make(Type type, uint64_t seq, uint64_t number = 0) {
    Message message;
    message.type = type;
    message.key = IdOf(meta_.name);
    message.seq = seq;
    message.number = number;
    return message;
  }
  Message Push(uint64_t seq, uint64_t round) {
    Message push = Make(Type::kPush, seq, round);
    push.body = values_;
    return push;
  }
  LinkId Greet(Rank rank, uint64_t incarnation) {
    const LinkId link = node_.Accept();
    Message hello;
    hello.type = Type::kHello;
    hello.extra = Encode(Hello{"", Role::kWorker, rank, incarnation, 0, ""});
    Deliver(link, {hello});
    return link;
  }
  // Delivers messages in one frame.  Returns false if the server has closed the link.
  bool Deliver(LinkId link, std::vector<Message> messages) {
    FrameBuilder builder;
    for (Message& message : messages) builder.Add(std::move(message));
    return DeliverFrame(link, builder.Finish(1, 0));
  }
  bool DeliverFrame(LinkId link, const Frame& frame) {
    try {
      const std::vector<Block> blocks = node_.Land(link, std::as_bytes(std::span(frame.head)));
      for (size_t i = 0; i < blocks.size() && i < frame.bodies.size(); ++i) {
        if (blocks[i]) std::memcpy(blocks[i].data, frame.bodies[i].data, frame.bodies[i].size);
      }
      node_.Received(link, 0);
    } catch (const Error& error) {
      node_.Closed(link, 0);
      reason_ = error.what();
      return false;
    }
    return Take();
  }
  // Takes the node's answers and disk readings.  Returns false if the node closes a link.
  bool Take() {
    NodeOutput output = node_.TakeOutput();
    answers_.clear();
    for (const NodeOutput::Send& send : output.sends) {
      const auto head = std::as_bytes(std::span(send.frame.head));
      DecodeMessages(DecodeHeader(head, {}), head, &answers_);
    }
    if (!answers_.empty()) reason_ = answers_.back().extra;
    readings_ = std::move(output.readings);
    return output.closes.empty();
  }
  // Expects that the session has ended with this reason, and that nothing else has changed.
  void ExpectClosed(bool is_open, const char* reason) {
    EXPECT_FALSE(is_open);
    EXPECT_NE(reason_.find(reason), std::string::npos) << reason_;
    ExpectUnchanged();
  }
  // Expects that the operation was answered with this error, and that nothing else has changed.
  void ExpectRefused(bool is_open, Code code, const char* reason) {
    ASSERT_TRUE(is_open);
    ASSERT_EQ(answers_.size(), 1U);
    ASSERT_EQ(answers_[0].type, Type::kError);
    EXPECT_EQ(ErrorOf(answers_[0]).code(), code);
    EXPECT_NE(reason_.find(reason), std::string::npos) << reason_;
    ExpectUnchanged();
  }
  void ExpectUnchanged() {
    const Chunk* const chunk = node_.shard().FindChunk({IdOf(meta_.name), 0});
    ASSERT_NE(chunk, nullptr);
    EXPECT_EQ(chunk->version, 0u);
    EXPECT_EQ(reinterpret_cast<const float*>(chunk->value.Read().data)[3], 4.0F);
    EXPECT_TRUE(chunk->parked.empty());
    EXPECT_EQ(pool_.bytes_in_use(), bytes_before_);
    ASSERT_TRUE(Deliver(other_, {Make(Type::kPull, 1, 0)}));
    EXPECT_EQ(answers_.at(0).type, Type::kValue);
  }
  // Returns a frame whose header and only entry `forge` has changed.
  Frame Forged(Message message, const std::function<void(FrameHeader*, FrameEntry*)>& forge) {
    FrameBuilder builder;
    message.body = {};
    builder.Add(std::move(message));
    Frame frame = builder.Finish(1, 0);
    FrameHeader header;
    FrameEntry entry;
    std::memcpy(&header, frame.head.data(), sizeof header);
    std::memcpy(&entry, frame.head.data() + sizeof header, sizeof entry);
    forge(&header, &entry);
    std::memcpy(frame.head.data(), &header, sizeof header);
    std::memcpy(frame.head.data() + sizeof header, &entry, sizeof entry);
    Seal(&frame.head);
    return frame;
  }

  BufferPool pool_;
  ServerNode node_;
  KeyMeta meta_;
  std::vector<float> floats_ = {1, 2, 3, 4};
  Bytes values_ = {reinterpret_cast<const std::byte*>(floats_.data()), 16, nullptr};
  LinkId hostile_ = 0, other_ = 0;
  size_t bytes_before_ = 0;
  std::string reason_;
  std::vector<Message> answers_;
  std::vector<NodeOutput::Reading> readings_;
};

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// A server whose process can get little more memory while a message of 256 MiB arrives.
class ScarceServerTest : public HostilePeerTest {
 protected:
  static constexpr uint32_t kBytes = uint32_t{256} << 20;
  ScarceServerTest() : HostilePeerTest(Roomy()) {}
  static ShardOptions Roomy() {
    ShardOptions options = Shard();
    options.chunk_bytes_max = kBytes;
    return options;
  }
  Message HugeInit(uint64_t seq) {
    KeyMeta huge;
    huge.name = CanonicalKey(0, "huge");
    huge.shape = Shape({kBytes / 4});
    huge.chunk_elements = kBytes / 4;
    Message init = Make(Type::kInit, seq);
    init.key = IdOf(huge.name);
    init.extra = Encode(huge);
    init.body = {values_.data, kBytes, nullptr};  // only the size is used; nobody reads the bytes
    return init;
  }
  bool DeliverWithoutMemory(std::vector<Message> messages) {
    rlimit before{};
    getrlimit(RLIMIT_AS, &before);
    rlimit small = before;
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    small.rlim_cur = pages * static_cast<size_t>(getpagesize()) + kBytes / 4;
    setrlimit(RLIMIT_AS, &small);
    const bool is_open = Deliver(hostile_, std::move(messages));
    setrlimit(RLIMIT_AS, &before);
    return is_open;
  }
};

TEST_F(ScarceServerTest, ABodyWithoutMemoryIsAnErrorOfItsMessageAndItsLinkLives) {
  for (int i = 0; i < 2; ++i) {  // a repeated message gets an answer again
    ExpectRefused(DeliverWithoutMemory({HugeInit(2)}), Code::kResourceExhausted,
                  "the system has no 268435456 bytes of memory");
  }
  EXPECT_TRUE(Deliver(hostile_, {Push(3, 1)}));
  EXPECT_EQ(answers_.at(0).type, Type::kAccepted);
}

#endif

// A message whose rows are on the disk waits until they have been read.  Later messages on its link
// wait too; other links continue.
TEST_F(HostilePeerTest, MessagesWaitForTheDiskInTheirOrder) {
  KeyMeta table;
  table.name = CanonicalKey(0, "table");
  table.shape = Shape({2});
  table.layout = Layout::kRows;
  table.row_count = 1000;
  table.buckets = 1;
  table.mode = KeyMeta::Mode::kAsync;
  table.policy.memory_max = 200;
  const auto make = [&](Type type, uint64_t seq, const std::vector<uint64_t>& ids,
                        bool has_values) {
    Message message = Make(type, seq);
    message.key = IdOf(table.name);
    std::vector<uint64_t> sorted = ids;
    std::sort(sorted.begin(), sorted.end(), [](auto a, auto b) { return Mix(a) < Mix(b); });
    const auto body = std::make_shared<std::vector<std::byte>>(ids.size() * (has_values ? 16 : 8));
    std::memcpy(body->data(), sorted.data(), ids.size() * 8);
    message.body = {body->data(), body->size(), body};
    return message;
  };
  std::vector<uint64_t> all(200);
  std::iota(all.begin(), all.end(), 0);
  Message init = make(Type::kInit, 2, all, true);
  init.extra = Encode(table);
  ASSERT_TRUE(Deliver(hostile_, {init}));
  ASSERT_EQ(answers_.at(0).type, Type::kOk) << reason_;
  Message push = make(Type::kPush, 3, {500}, true);
  push.encoding = Encoding::kRows;
  ASSERT_TRUE(Deliver(hostile_, {push}));
  ASSERT_EQ(answers_.at(0).type, Type::kAccepted) << reason_;
  const RowTable& rows = node_.shard().FindChunk({IdOf(table.name), 0})->value.rows();
  const auto is_there = [&](uint64_t id) {
    const uint64_t mix = Mix(id);
    return rows.RangesOnDisk({&mix, 1}).empty();
  };
  ASSERT_TRUE(is_there(500));
  const uint64_t away = *std::find_if_not(all.begin(), all.end(), is_there);

  ASSERT_TRUE(
      Deliver(hostile_, {make(Type::kPull, 4, {away}, false), make(Type::kPull, 5, {500}, false),
                         make(Type::kPull, 6, {away, 500}, false)}));
  EXPECT_TRUE(answers_.empty());
  ASSERT_EQ(readings_.size(), 2U);
  const auto readings = readings_;
  ASSERT_TRUE(Deliver(other_, {make(Type::kPull, 1, {500}, false)}));
  ASSERT_EQ(answers_.size(), 1U);
  node_.ReadEnded(readings[1].ticket, 0);  // of the last message, which still waits
  Take();
  EXPECT_TRUE(answers_.empty());
  node_.ReadEnded(999, 0);
  node_.ReadEnded(readings[0].ticket, 0);
  Take();
  ASSERT_EQ(answers_.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answers_[i].type, Type::kValue);
    EXPECT_EQ(answers_[i].seq, 4 + i);
  }
  ASSERT_TRUE(Deliver(hostile_, {make(Type::kPull, 7, {500}, false)}));
  EXPECT_EQ(answers_.size(), 1U) << "nothing is held any more";

  ASSERT_TRUE(Deliver(hostile_, {make(Type::kPull, 8, {away}, false)}));
  ASSERT_EQ(readings_.size(), 1U);
  const uint64_t ticket = readings_[0].ticket;
  node_.Closed(hostile_, 0);
  node_.ReadEnded(ticket, 0);
  Take();
  EXPECT_TRUE(answers_.empty());
}

TEST_F(HostilePeerTest, ALengthOf2To60) {
  const Frame frame = Forged(Push(2, 1), [](FrameHeader* header, FrameEntry* entry) {
    header->body_bytes = entry->body_bytes = uint64_t{1} << 60;
  });
  ExpectClosed(DeliverFrame(hostile_, frame), "are allowed");
}

TEST_F(HostilePeerTest, ALengthThatIsAllowedInAFrameButNotForThisChunk) {
  const Frame frame = Forged(Push(2, 1), [](FrameHeader* header, FrameEntry* entry) {
    header->body_bytes = entry->body_bytes = uint64_t{1} << 39;
  });
  ExpectRefused(DeliverFrame(hostile_, frame), Code::kFailedPrecondition,
                "bytes of float32, the chunk has 16");
}

TEST_F(HostilePeerTest, AnInitOfMoreThanAChunkMayHave) {
  KeyMeta huge;
  huge.name = CanonicalKey(0, "huge");
  huge.chunk_elements = 1u << 31;
  huge.shape = Shape({int64_t{1} << 31});
  Message init = Make(Type::kInit, 2);
  init.key = IdOf(huge.name);
  init.extra = Encode(huge);
  const Frame frame = Forged(init, [](FrameHeader* header, FrameEntry* entry) {
    header->body_bytes = entry->body_bytes = uint64_t{1} << 33;
  });
  ASSERT_TRUE(DeliverFrame(hostile_, frame));
  EXPECT_EQ(ErrorOf(answers_.at(0)).code(), Code::kResourceExhausted);
  EXPECT_EQ(pool_.bytes_in_use(), bytes_before_);
}

TEST_F(HostilePeerTest, ATraceBeforeHello) {
  const LinkId stranger = node_.Accept();
  ExpectClosed(Deliver(stranger, {Make(Type::kTrace, 1)}), "HELLO comes first");
}

TEST_F(HostilePeerTest, ATraceIsAnsweredAndEndsWithItsSession) {
  Message trace = Make(Type::kTrace, 2, UINT64_MAX);
  trace.flags = kRecord;
  ASSERT_TRUE(Deliver(hostile_, {trace}));
  ASSERT_EQ(answers_.size(), 1U);
  EXPECT_EQ(answers_[0].type, Type::kTraced);
  ASSERT_TRUE(Deliver(hostile_, {Push(3, 1)}));
  ASSERT_TRUE(Deliver(other_, {Push(1, 1)}));
  trace.number = 0;
  ASSERT_TRUE(Deliver(hostile_, {trace}));
  const std::vector<Span> spans = DecodeSpans(answers_.at(0).extra);
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(spans[0].kind, Span::Kind::kPush);
  EXPECT_EQ(spans[0].rank, 0);
  EXPECT_EQ(spans[1].kind, Span::Kind::kUpdate);
  EXPECT_EQ(spans[1].number, 1U);
  EXPECT_EQ(spans[1].rank, 1) << "whose push was the last";
  EXPECT_EQ(spans[2].kind, Span::Kind::kPush);
  node_.Closed(hostile_, 0);
  ASSERT_TRUE(Deliver(other_, {trace}));
  EXPECT_TRUE(answers_.at(0).extra.empty());
}

TEST_F(HostilePeerTest, MoreOperationsThanTheFrameHas) {
  const Frame frame = Forged(Push(2, 1), [](FrameHeader* header, FrameEntry*) {
    header->entry_count = uint32_t{1} << 31;
  });
  ExpectClosed(DeliverFrame(hostile_, frame), "operations in");
}

TEST_F(HostilePeerTest, AnotherDtype) {
  Message push = Push(2, 1);
  push.dtype = DType::kI32;
  ExpectRefused(Deliver(hostile_, {push}), Code::kFailedPrecondition,
                "bytes of int32, the chunk has 16 of float32");
}

TEST_F(HostilePeerTest, AChunkThatIsNotThere) {
  Message push = Push(2, 1);
  push.chunk = 7;
  ASSERT_TRUE(Deliver(hostile_, {push}));  // an error answer, as for a deleted key
  EXPECT_EQ(ErrorOf(answers_.at(0)).code(), Code::kNotFound);
  EXPECT_EQ(pool_.bytes_in_use(), bytes_before_);
}

TEST_F(HostilePeerTest, AnInitOfAChunkThatBelongsToNoKeyLikeThat) {
  Message init = Make(Type::kInit, 2);
  init.chunk = 9;
  init.extra = Encode(meta_);
  init.body = values_;
  ExpectClosed(Deliver(hostile_, {init}), "does not belong to this key");
}

TEST_F(HostilePeerTest, ARoundFromTheFuture) {
  ExpectRefused(Deliver(hostile_, {Push(2, 1000)}), Code::kFailedPrecondition,
                "version 0 is the newest");
}

TEST_F(HostilePeerTest, AWindowOverrun) {
  ExpectClosed(Deliver(hostile_, {Push(5000, 1)}), "is beyond the window");
}

TEST_F(HostilePeerTest, AFloodOfParkedPulls) {
  constexpr size_t kParkedMax = 100;
  for (uint64_t seq = 2; seq < 1000; ++seq) {
    ASSERT_TRUE(Deliver(hostile_, {Make(Type::kPull, seq, 5)}));
    if (seq < 2 + kParkedMax) continue;
    ASSERT_EQ(answers_.size(), 1U);
    EXPECT_EQ(ErrorOf(answers_[0]).code(), Code::kResourceExhausted);
  }
  EXPECT_EQ(node_.shard().FindChunk({IdOf(meta_.name), 0})->parked.size(), kParkedMax);
  node_.Closed(hostile_, 0);
  ExpectUnchanged();
}

TEST_F(HostilePeerTest, AFloodOfAsyncPushesWhosePredecessorNeverComes) {
  KeyMeta async = meta_;
  async.name = CanonicalKey(0, "async");
  async.mode = KeyMeta::Mode::kAsync;
  Message init = Make(Type::kInit, 2);
  init.key = IdOf(async.name);
  init.extra = Encode(async);
  init.body = values_;
  ASSERT_TRUE(Deliver(hostile_, {init}));
  for (uint64_t seq = 4; seq < 1024; ++seq) {
    Message push = Push(seq, 1);
    push.key = IdOf(async.name);
    push.need = 3;
    if (!Deliver(hostile_, {push})) break;
  }
  EXPECT_LE(pool_.bytes_in_use(), bytes_before_ + 1024 * 64 + 64);  // the window bounds it
}

TEST_F(HostilePeerTest, AStaleIncarnation) {
  const LinkId link = node_.Accept();
  Message hello;
  hello.type = Type::kHello;
  hello.extra = Encode(Hello{"", Role::kWorker, 0, 3, 0, ""});
  EXPECT_FALSE(Deliver(link, {hello}));
  EXPECT_EQ(reason_, "HELLO: worker 0 incarnation 3 is over");
}

TEST_F(HostilePeerTest, AReservedType) {
  const Frame frame = Forged(Push(2, 1), [](FrameHeader*, FrameEntry* entry) {
    entry->type = static_cast<uint8_t>(Type::kReplicate);
  });
  ExpectClosed(DeliverFrame(hostile_, frame), "REPLICATE");
}

TEST_F(HostilePeerTest, MoreThan4KiBBeforeItIsWelcome) {
  const LinkId link = node_.Accept();
  Message init = Make(Type::kInit, 1);
  init.extra = std::string(2000, 'x');
  FrameBuilder builder;
  for (int i = 0; i < 3; ++i) builder.Add(Message(init));
  EXPECT_FALSE(DeliverFrame(link, builder.Finish(1, 0)));
  EXPECT_NE(reason_.find("are allowed"), std::string::npos) << reason_;
}

// ---- a bug of TensorKV in a client --------------------------------------------------------------

// A worker's node, welcomed by its head and linked to its one server.
class BrokenClientTest : public ::testing::Test {
 protected:
  BrokenClientTest() : node_(Options(), {}, &pool_) {
    node_.Start(0);
    head_ = node_.TakeOutput().dials.at(0).link;
    node_.Opened(head_, 0);
    Message welcome;
    welcome.type = Type::kWelcome;
    welcome.extra = Encode(Welcome{.rank = 0, .incarnation = 4});
    Epoch epoch;
    epoch.number = 1;
    epoch.workers = {{4, Epoch::State::kAlive}};
    epoch.servers = {{9, Epoch::State::kAlive}};
    epoch.placement = {1, 1, {}};
    Message news;
    news.type = Type::kEpoch;
    news.number = 1;
    news.extra = Encode(epoch);
    Deliver(head_, {welcome, news});
    waiting_ = node_.Begin(Init("w"), 0);
    server_ = node_.TakeOutput().dials.at(0).link;
    EXPECT_TRUE(node_.TakeOutcomes().empty());
    node_.RehearseBug();
  }
  static MemberOptions Options() {
    MemberOptions options;
    options.role = Role::kWorker;
    return options;
  }
  static Operation Init(const char* name) {
    Operation init;
    init.verb = "init";
    init.key = CanonicalKey(0, KeyView(std::string_view(name)));
    auto meta = std::make_shared<KeyMeta>();
    meta->shape = Shape({0});
    init.request = Operation::Init{meta, {}};
    return init;
  }
  void Deliver(LinkId link, std::vector<Message> messages) {
    FrameBuilder builder;
    for (Message& message : messages) builder.Add(std::move(message));
    const Frame frame = builder.Finish(1, 0);
    node_.Land(link, std::as_bytes(std::span(frame.head)));
    node_.Received(link, 0);
  }
  // Every operation has failed, once, and no later one begins.
  void ExpectLifeIsOver(size_t count = 1) {
    const std::vector<Outcome> outcomes = node_.TakeOutcomes();
    ASSERT_EQ(outcomes.size(), count);
    for (const Outcome& outcome : outcomes) {
      ASSERT_TRUE(outcome.error);
      EXPECT_EQ(outcome.error->code(), Code::kInternal) << outcome.error->what();
    }
    EXPECT_TRUE(node_.client().closed());
    node_.Begin(Init("v"), 0);
    EXPECT_EQ(node_.TakeOutcomes().size(), 1U);
  }

  BufferPool pool_;
  ClientNode node_;
  LinkId head_ = 0, server_ = 0;
  OpId waiting_ = kNoOp;
};

TEST_F(BrokenClientTest, ABeginEndsTheLife) {
  node_.Begin(Init("x"), 0);
  ExpectLifeIsOver(2);
}

TEST_F(BrokenClientTest, ABeginOfSeveralEndsTheLifeAndEachOfThem) {
  std::vector<Operation> several;
  several.push_back(Init("x"));
  several.push_back(Init("y"));
  node_.Begin(std::move(several), 0);
  ExpectLifeIsOver(3);
}

TEST_F(BrokenClientTest, ACancelOfAnotherOperationEndsTheLife) {
  const OpId another = waiting_ + 1;
  node_.Cancel({&another, 1}, Error(Code::kCancelled, "given up"), 0);
  ExpectLifeIsOver();
}

TEST_F(BrokenClientTest, ADetachEndsTheLife) {
  node_.Detach({&waiting_, 1});
  ExpectLifeIsOver();
}

TEST_F(BrokenClientTest, ATickEndsTheLife) {
  node_.Tick(0);
  ExpectLifeIsOver();
}

TEST_F(BrokenClientTest, AnOpenedLinkEndsTheLife) {
  node_.Opened(server_, 0);
  ExpectLifeIsOver();
}

TEST_F(BrokenClientTest, AClosedLinkEndsTheLife) {
  node_.Closed(server_, 0);
  ExpectLifeIsOver();
}

TEST_F(BrokenClientTest, AMessageOfTheHeadEndsTheLife) {
  Message pong;
  pong.type = Type::kPong;
  Deliver(head_, {pong});
  ExpectLifeIsOver();
}

TEST_F(BrokenClientTest, AMessageOfAServerEndsTheLife) {
  Message pong;
  pong.type = Type::kPong;
  Deliver(server_, {pong});
  ExpectLifeIsOver();
}

}  // namespace
}  // namespace tkv
