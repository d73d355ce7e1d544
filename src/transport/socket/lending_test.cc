#include "transport/socket/lending.h"
#include "tests/frames.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "transport/socket/endpoint.h"

namespace tkv {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::shared_ptr<Arena> OpenArena() {
  std::string why;
  return Arena::Open(&why);
}

Frame FrameOf(Bytes body) {
  Message push;
  push.type = Type::kPush;
  push.body = std::move(body);
  FrameBuilder builder;
  builder.Add(std::move(push));
  return builder.Finish(0, 0);
}

struct Receiver final : LinkHandler {
  uint64_t last = 100;
  std::vector<uint64_t> opened, closed;
  size_t received = 0, lent = 0;
  std::byte first{};
  const std::byte* at = nullptr;
  uint64_t Accepted() override { return ++last; }
  void Opened(uint64_t link) override { opened.push_back(link); }
  void Closed(uint64_t link, const Error&) override { closed.push_back(link); }
  std::vector<Block> Land(uint64_t, std::span<const std::byte> head,
                          const std::byte* where) override {
    std::vector<Message> messages;
    DecodeMessages(DecodeHeader(head, {}), head, &messages);
    at = where;
    std::vector<Block> blocks;
    for (const Message& message : messages) blocks.push_back({nullptr, message.body.size, nullptr});
    return blocks;
  }
  void Received(uint64_t) override {
    ++received;
    if (at == nullptr) return;
    ++lent;
    first = *at;
  }
};

struct LendingSide {
  explicit LendingSide(bool listens) : arena(OpenArena()) {
    SocketOptions options;
    options.arena = arena;
    if (listens) options.listen = {"unix"};
    endpoint = OpenSockets(options);
  }
  std::shared_ptr<Arena> arena;
  std::unique_ptr<Endpoint> endpoint;
  Receiver handler;
};

class Pair : public ::testing::Test {
 protected:
  template <typename Condition>
  bool Until(Condition condition, int milliseconds = 5000) {
    for (int i = 0; i < milliseconds && !condition(); ++i) {
      const size_t count = server_.endpoint->Poll(&server_.handler, 16) +
                           client_.endpoint->Poll(&client_.handler, 16);
      if (count == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return condition();
  }
  // From here on bodies are lent in both directions.
  void Connect() {
    client_.endpoint->Dial(7, server_.endpoint->address());
    ASSERT_TRUE(Until([&] { return !client_.handler.opened.empty(); }));
    const std::vector<std::byte> body(kMiB);
    client_.endpoint->Send(7, FrameOf({body.data(), body.size(), nullptr}));
    server_.endpoint->Send(101, FrameOf({body.data(), body.size(), nullptr}));
    ASSERT_TRUE(Until([&] { return client_.handler.received + server_.handler.received == 2; }));
    ASSERT_EQ(client_.handler.lent + server_.handler.lent, 0U) << "what comes first is inline";
  }
  LendingSide server_{true};
  LendingSide client_{false};
};

TEST_F(Pair, LargeBodiesAreLentOnceTheFilesAreThere) {
  Connect();
  const std::vector<std::byte> large(kMiB, std::byte{9});
  const std::vector<std::byte> small(kCoalesceBelowBytes - 1);
  client_.endpoint->Send(7, FrameOf({large.data(), large.size(), nullptr}));
  client_.endpoint->Send(7, FrameOf({small.data(), small.size(), nullptr}));
  ASSERT_TRUE(Until([&] { return server_.handler.received == 3; }));
  EXPECT_EQ(server_.handler.lent, 1U);
  EXPECT_EQ(server_.handler.first, std::byte{9});
}

TEST_F(Pair, MoreThanCanBeLentAtOnceGoesBothWaysAtOnce) {
  Connect();
  const std::vector<std::byte> body(kMiB);
  const auto huge = std::make_shared<std::vector<std::byte>>(40 * kMiB);
  for (int i = 0; i < 60; ++i) {
    client_.endpoint->Send(7, FrameOf({body.data(), body.size(), nullptr}));
    server_.endpoint->Send(101, FrameOf({body.data(), body.size(), nullptr}));
  }
  client_.endpoint->Send(7, FrameOf({huge->data(), huge->size(), huge}));
  client_.endpoint->Send(7, FrameOf({body.data(), body.size(), nullptr}));
  ASSERT_TRUE(
      Until([&] { return server_.handler.received == 63 && client_.handler.received == 61; }));
  EXPECT_EQ(server_.handler.lent, 62U);
  EXPECT_EQ(client_.handler.lent, 60U);
  EXPECT_EQ(huge.use_count(), 1);
}

TEST_F(Pair, WhatIsInTheArenaIsNotCopiedAndStaysUntilItIsTaken) {
  Connect();
  Block value = server_.arena->Allocate(kMiB);
  std::fill_n(value.data, kMiB, std::byte{1});
  value.data[0] = std::byte{3};
  server_.endpoint->Send(101, FrameOf(value.bytes()));
  EXPECT_FALSE(value.unique());
  ASSERT_TRUE(Until([&] { return client_.handler.lent == 1; }));
  EXPECT_EQ(client_.handler.first, std::byte{3});
  EXPECT_TRUE(Until([&] { return value.unique(); }));
}

// All heads fit into one reading of the socket; the copies of their bodies do not fit into one turn.
TEST_F(Pair, ManyLentBodiesAreTakenInSeveralTurns) {
  Connect();
  std::vector<Block> values;
  for (int i = 0; i < 64; ++i) {
    values.push_back(server_.arena->Allocate(kMiB));
    std::fill_n(values.back().data, kMiB, std::byte{1});
    server_.endpoint->Send(101, FrameOf(values.back().bytes()));
  }
  size_t most = 0;
  ASSERT_TRUE(Until([&] {
    const size_t before = client_.handler.lent;
    client_.endpoint->Poll(&client_.handler, 16);
    most = std::max(most, client_.handler.lent - before);
    return client_.handler.lent == 64;
  }));
  EXPECT_LE(most, 8U) << "8 MiB in a turn";
}

TEST_F(Pair, WhatASilentPeerMayStillReadIsNotUsedAgain) {
  Connect();
  Block value = server_.arena->Allocate(kMiB);
  std::fill_n(value.data, kMiB, std::byte{1});
  server_.endpoint->Send(101, FrameOf(value.bytes()));
  server_.endpoint->Close(101);
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(1500)) {
    server_.endpoint->Poll(&server_.handler, 16);  // the server's deadline for the client ends here
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_FALSE(value.unique());
  ASSERT_TRUE(Until([&] { return client_.handler.closed.size() == 1; }));
  EXPECT_TRUE(Until([&] { return value.unique(); })) << "the client has closed it";
}

// Bytes sent as the head of a small frame leave unchanged.
TEST_F(Pair, AFrameOfSeveralBodiesCannotBeLent) {
  Connect();
  LendRecord record;
  record.kind = LendRecord::Kind::kBody;
  record.bytes = 30;
  FrameBuilder builder;
  for (const size_t bytes : {size_t{13}, size_t{17}}) {
    static const std::byte body[17] = {};
    Message push;
    push.type = Type::kPush;
    push.body = {body, bytes, nullptr};
    builder.Add(std::move(push));
  }
  Frame frame = builder.Finish(0, 0);
  frame.head.insert(0, std::string(reinterpret_cast<const char*>(&record), sizeof(record)));
  frame.bodies.clear();
  frame.body_bytes = 0;
  client_.endpoint->Send(7, std::move(frame));
  EXPECT_TRUE(Until([&] { return server_.handler.closed.size() == 1; }));
  EXPECT_EQ(server_.handler.received, 1U);
}

TEST(Lending, RefusesRecordsThatCannotBe) {
  const auto warn = [](const std::string&) {};
  using Kind = LendRecord::Kind;
  for (const auto kind :
       {Kind::kFile, Kind::kMapped, Kind::kBody, Kind::kFree, Kind{0}, Kind{77}}) {
    Lending lending(OpenArena(), warn);
    LendRecord record;
    record.kind = kind;
    EXPECT_THROW(lending.Receive(record), Error) << static_cast<int>(kind);
  }
  Lending lending(OpenArena(), warn);
  const auto theirs = OpenArena();
  LendRecord record;
  record.kind = Kind::kFile;
  lending.TakeFrom(dup(theirs->reader_file()));
  lending.Receive(record);
  EXPECT_THROW(lending.TakeFrom(dup(theirs->reader_file())), Error) << "a second file";
  EXPECT_THROW(lending.Receive(record), Error) << "a record without one";
  record.kind = Kind::kBody;
  record.offset = 1;
  record.bytes = ~uint64_t{0};
  lending.Receive(record);
  EXPECT_THROW(lending.Body(100), Error) << "of another size";
  EXPECT_THROW(lending.Body(~uint64_t{0}), Error) << "outside";
  EXPECT_THROW(lending.Receive(record), Error) << "the frame has to come first";
  lending.Taken();
  record.bytes = 100;
  lending.Receive(record);
  EXPECT_THROW(lending.Body(100), Error) << "not aligned";
}

TEST(Lending, AnOrdinaryFileIsNotMapped) {
  Lending lending(nullptr, [](const std::string&) {});
  char name[] = "/tmp/tkv-lending-XXXXXX";
  const int file = mkstemp(name);
  unlink(name);
  ASSERT_EQ(ftruncate(file, 4096), 0);
  lending.TakeFrom(file);
  LendRecord record;
  record.kind = LendRecord::Kind::kFile;
  EXPECT_THROW(lending.Receive(record), Error);
}

}  // namespace
}  // namespace tkv
