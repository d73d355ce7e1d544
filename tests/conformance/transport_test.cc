// What every transport has to do.  A transport enrols by one line at the end.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "transport/inproc/network.h"

namespace tkv {
namespace {

// A transport under test: endpoints that can reach each other by address.
struct Bench {
  virtual ~Bench() = default;
  virtual std::unique_ptr<Endpoint> Listen(const std::string& address) = 0;
};

using MakeBench = std::function<std::unique_ptr<Bench>()>;

struct Recorder final : LinkHandler {
  uint64_t next_link = 1000;
  std::vector<uint64_t> accepted, opened, closed;
  std::vector<std::string> heads;
  std::vector<std::vector<std::byte>> bodies;
  std::function<std::vector<Block>(const std::string&)> land;
  std::vector<Block> landing;

  uint64_t Accepted() override {
    accepted.push_back(++next_link);
    return next_link;
  }
  void Opened(uint64_t link) override { opened.push_back(link); }
  void Closed(uint64_t link, const std::string&) override { closed.push_back(link); }
  std::vector<Block> Land(uint64_t, std::span<const std::byte> head) override {
    heads.emplace_back(reinterpret_cast<const char*>(head.data()), head.size());
    landing = land ? land(heads.back()) : std::vector<Block>{};
    return landing;
  }
  void Received(uint64_t) override {
    for (const Block& block : landing) bodies.emplace_back(block.data, block.data + block.size);
  }
};

class TransportConformance : public ::testing::TestWithParam<MakeBench> {
 protected:
  void SetUp() override {
    bench_ = GetParam()();
    server_ = bench_->Listen("server");
    client_ = bench_->Listen("client");
  }
  // Delivers until the condition holds; false after a second without.
  template <typename Condition>
  bool Until(Condition condition) {
    for (int i = 0; i < 1000 && !condition(); ++i) {
      const size_t count = server_->Poll(&at_server_, 16) + client_->Poll(&at_client_, 16);
      if (count == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return condition();
  }
  void Connect() {
    client_->Dial(7, "server");
    ASSERT_TRUE(Until([&] { return at_client_.opened.size() == 1; }));
    ASSERT_EQ(at_server_.accepted.size(), 1U);
  }
  static Frame FrameOf(const std::string& text) {
    Message message;
    message.type = Type::kError;
    message.extra = text;
    FrameBuilder builder;
    builder.Add(std::move(message));
    return builder.Finish(0, 0);
  }

  std::unique_ptr<Bench> bench_;
  std::unique_ptr<Endpoint> server_, client_;
  Recorder at_server_, at_client_;
};

TEST_P(TransportConformance, FramesArriveWholeAndInOrder) {
  Connect();
  std::vector<std::string> sent;
  for (int i = 0; i < 100; ++i) {
    Frame frame = FrameOf(std::string(static_cast<size_t>(i), 'x'));
    sent.push_back(frame.head);
    client_->Send(7, std::move(frame));
  }
  ASSERT_TRUE(Until([&] { return at_server_.heads.size() == sent.size(); }));
  EXPECT_EQ(at_server_.heads, sent);
}

TEST_P(TransportConformance, ABodyLandsWhereTheReceiverSays) {
  Connect();
  std::vector<std::byte> target(300'000);
  at_server_.land = [&](const std::string&) {
    return std::vector<Block>{{target.data(), target.size(), nullptr}};
  };
  std::vector<std::byte> source(target.size());
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7);
  Message push;
  push.type = Type::kPush;
  push.body = {source.data(), source.size(), nullptr};
  FrameBuilder builder;
  builder.Add(Message(push));
  client_->Send(7, builder.Finish(0, 0));
  ASSERT_TRUE(Until([&] { return at_server_.bodies.size() == 1; }));
  EXPECT_EQ(target, source);
}

TEST_P(TransportConformance, ABodyWithoutAPlaceIsThrownAway) {
  Connect();
  at_server_.land = [](const std::string&) { return std::vector<Block>(1); };
  std::vector<std::byte> source(5000);
  Message push;
  push.type = Type::kPush;
  push.body = {source.data(), source.size(), nullptr};
  FrameBuilder builder;
  builder.Add(Message(push));
  client_->Send(7, builder.Finish(0, 0));
  client_->Send(7, FrameOf("after"));
  ASSERT_TRUE(Until([&] { return at_server_.heads.size() == 2; }));
}

TEST_P(TransportConformance, BothSidesCanSend) {
  Connect();
  server_->Send(at_server_.accepted[0], FrameOf("hello"));
  ASSERT_TRUE(Until([&] { return at_client_.heads.size() == 1; }));
}

TEST_P(TransportConformance, ADialToNobodyIsClosed) {
  client_->Dial(8, "nobody");
  ASSERT_TRUE(Until([&] { return at_client_.closed.size() == 1; }));
  EXPECT_EQ(at_client_.closed[0], 8U);
}

TEST_P(TransportConformance, ThePeerIsToldOfAClose) {
  Connect();
  client_->Send(7, FrameOf("last"));
  client_->Close(7);
  ASSERT_TRUE(Until([&] { return at_server_.closed.size() == 1; }));
  EXPECT_EQ(at_server_.heads.size(), 1U) << "what was sent before the close arrives";
  EXPECT_TRUE(at_client_.closed.empty()) << "who closes is not told";
  server_->Send(at_server_.accepted[0], FrameOf("into the void"));
}

TEST_P(TransportConformance, ThePeerIsToldWhenAnEndpointEnds) {
  Connect();
  client_.reset();
  for (int i = 0; i < 1000 && at_server_.closed.empty(); ++i) {
    if (server_->Poll(&at_server_, 16) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  EXPECT_EQ(at_server_.closed.size(), 1U);
}

TEST_P(TransportConformance, AHeadThatIsRefusedClosesItsLink) {
  Connect();
  at_server_.land = [](const std::string&) -> std::vector<Block> {
    throw Error(Code::kInvalidArgument, "not this");
  };
  client_->Send(7, FrameOf("bad"));
  ASSERT_TRUE(Until([&] { return !at_client_.closed.empty(); }));
  EXPECT_EQ(at_server_.closed.size(), 1U);
}

TEST_P(TransportConformance, WaitEndsByWakeByArrivalAndByTime) {
  EXPECT_FALSE(server_->Wait(1'000'000));
  std::thread other([&] { server_->Wake(); });
  EXPECT_TRUE(server_->Wait(5'000'000'000));
  other.join();
  client_->Dial(9, "server");
  EXPECT_TRUE(server_->Wait(5'000'000'000));
}

struct InprocBench final : Bench {
  InprocNetwork network;
  std::unique_ptr<Endpoint> Listen(const std::string& address) override {
    return network.Listen(address);
  }
};

INSTANTIATE_TEST_SUITE_P(Inproc, TransportConformance,
                         ::testing::Values([] { return std::make_unique<InprocBench>(); }));

}  // namespace
}  // namespace tkv
