#include "job/failpoints.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "transport/socket/endpoint.h"
#include "wire/frame.h"

namespace tkv {
namespace {

struct Counts final : LinkHandler {
  uint64_t last = 100;
  size_t opened = 0, received = 0;
  std::vector<std::string> closed;
  uint64_t Accepted() override { return ++last; }
  void Opened(uint64_t) override { ++opened; }
  void Closed(uint64_t, const Error& reason) override { closed.emplace_back(reason.what()); }
  std::vector<Block> Land(uint64_t, std::span<const std::byte>, const std::byte*) override {
    return {};
  }
  void Received(uint64_t) override { ++received; }
};

Frame FrameOf(std::vector<Type> types) {
  FrameBuilder builder;
  for (const Type type : types) {
    Message message;
    message.type = type;
    builder.Add(std::move(message));
  }
  return builder.Finish(0, 0);
}

class FailpointsTest : public ::testing::Test {
 protected:
  void Connect(const std::string& at_client, const std::string& at_server) {
    SocketOptions options;
    options.who = "server 0";
    options.listen = {"unix"};
    server_ = WithFailpoints(OpenSockets(options), FailpointsOf("server 0", at_server));
    client_ = WithFailpoints(OpenSockets({}), FailpointsOf("worker 1", at_client));
    client_->Dial(1, server_->address());
    ASSERT_TRUE(Until([&] { return at_client_.opened == 1; }));
  }
  template <typename Condition>
  bool Until(Condition condition) {
    for (int i = 0; i < 2000 && !condition(); ++i) {
      if (server_->Poll(&at_server_, 16) + client_->Poll(&at_client_, 16) == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    return condition();
  }
  std::unique_ptr<Endpoint> server_, client_;
  Counts at_server_, at_client_;
};

TEST(Failpoints, AreThoseOfTheProcess) {
  const std::string text = "worker 1:sent:PUSH:3:kill,head:received:HELLO:1:cut";
  ASSERT_EQ(FailpointsOf("worker 1", text).size(), 1U);
  const Failpoint failpoint = FailpointsOf("worker 1", text)[0];
  EXPECT_TRUE(failpoint.at_sent);
  EXPECT_EQ(failpoint.type, Type::kPush);
  EXPECT_EQ(failpoint.count, 3);
  EXPECT_EQ(failpoint.action, Failpoint::Action::kKill);
  EXPECT_EQ(FailpointsOf("head", text)[0].action, Failpoint::Action::kCut);
  EXPECT_TRUE(FailpointsOf("worker 2", text).empty());
  EXPECT_TRUE(FailpointsOf("worker 2", "").empty());
}

TEST(Failpoints, ThatCannotBeReadAreNamed) {
  for (const char* wrong :
       {"x", "head:sent:PUSH:1", "head:lost:PUSH:1:kill", "head:sent:NONE:1:kill",
        "head:sent:PUSH:0:kill", "head:sent:PUSH:one:kill", "head:sent:PUSH:1:burn",
        "head:sent:PUSH:1:kill,", ","}) {
    try {
      FailpointsOf("worker 1", wrong);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("failpoint '"), std::string::npos) << error.what();
    }
  }
}

TEST_F(FailpointsTest, CutTheConnectionAfterTheMessage) {
  Connect("worker 1:sent:PUSH:3:cut", "");
  client_->Send(1, FrameOf({Type::kPush, Type::kPull, Type::kPush}));
  ASSERT_TRUE(Until([&] { return at_server_.received == 1; }));
  EXPECT_TRUE(at_client_.closed.empty());
  client_->Send(1, FrameOf({Type::kPush}));
  ASSERT_TRUE(Until([&] { return at_server_.closed.size() == 1; }));
  EXPECT_EQ(at_client_.closed, std::vector<std::string>{"cut by a failpoint"});
  EXPECT_EQ(at_server_.received, 2U) << "it was sent before the cut";
  client_->Dial(2, server_->address());  // once only
  ASSERT_TRUE(Until([&] { return at_client_.opened == 2; }));
  client_->Send(2, FrameOf({Type::kPush}));
  EXPECT_TRUE(Until([&] { return at_server_.received == 3; }));
}

TEST_F(FailpointsTest, CountWhatIsReceived) {
  Connect("", "server 0:received:PULL:2:cut");
  client_->Send(1, FrameOf({Type::kPull}));
  ASSERT_TRUE(Until([&] { return at_server_.received == 1; }));
  EXPECT_TRUE(at_server_.closed.empty());
  client_->Send(1, FrameOf({Type::kPull}));
  EXPECT_TRUE(Until([&] { return at_client_.closed.size() == 1; }));
}

TEST_F(FailpointsTest, KillTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Connect("worker 1:sent:PUSH:1:kill", "");
        client_->Send(1, FrameOf({Type::kPush}));
      },
      ::testing::KilledBySignal(SIGKILL), "");
}

}  // namespace
}  // namespace tkv
