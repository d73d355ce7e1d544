#include "job/node_thread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <new>

#include "tests/edges/raw_peer.h"
#include "transport/socket/endpoint.h"

namespace tkv {
namespace {

constexpr int kMembers = 50;  // more than a turn reads
// Members send their messages one after another, and the silence has to be far longer than that
// takes.  Sanitizers make it slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr Time kSilence = 6 * kSecond;
#else
constexpr Time kSilence = 2 * kSecond;
#endif

// A head with many workers, each connected by a socket of its own.
class Crowd : public ::testing::Test {
 protected:
  Crowd() {
    SocketOptions options;
    options.token = kRawToken;
    options.listen = {"unix"};
    auto endpoint = OpenSockets(options);
    const std::string address = endpoint->address();
    HeadOptions head;
    head.job = "job";
    head.workers = kMembers;
    head.dead_after = kSilence;
    head_ =
        std::make_unique<NodeThread>(std::make_unique<HeadNode>(head, &pool_, NodeThread::Now()),
                                     std::move(endpoint), NodeThreadOptions{});
    head_->Start();
    for (int i = 0; i < kMembers; ++i) {
      members_.push_back(std::make_unique<RawPeer>(address, Way::kUnix));
      EXPECT_TRUE(members_.back()->Shake());
    }
  }
  // Joins all members at once, so that they have the same time left.
  void JoinAll() {
    for (int i = 0; i < kMembers; ++i) {
      const Hello hello{"job", Role::kWorker, i, 0, static_cast<uint64_t>(i) + 1};
      members_[i]->SayAll(FrameText({MessageOf(Type::kHello, Encode(hello))}));
    }
    for (const auto& member : members_) EXPECT_TRUE(member->Hear(Type::kWelcome).has_value());
  }
  void PingAll() {
    for (const auto& member : members_) member->SayAll(FrameText({MessageOf(Type::kPing)}));
  }
  // Keeps the head from reading for so long, as a suspended process would.
  void StopFor(Time longest, const std::function<void()>& meanwhile) {
    head_->Run([&](Node&, Time begin) {
      meanwhile();
      while (NodeThread::Now() < begin + longest) std::this_thread::yield();
    });
  }
  ptrdiff_t Alive() {
    return head_->Run([](Node& node, Time) {
      const auto& workers = static_cast<HeadNode&>(node).head().epoch().workers;
      return std::count_if(workers.begin(), workers.end(),
                           [](const auto& worker) { return worker.state == Epoch::State::kAlive; });
    });
  }

  BufferPool pool_;
  std::vector<std::unique_ptr<RawPeer>> members_;
  std::unique_ptr<NodeThread> head_;
};

TEST_F(Crowd, WhoseWordLiesUnreadIsNotSilent) {
  JoinAll();
  StopFor(kSilence * 3 / 2, [&] { PingAll(); });
  for (const auto& member : members_) EXPECT_TRUE(member->Hear(Type::kPong).has_value());
  EXPECT_EQ(Alive(), kMembers);
}

TEST_F(Crowd, WhoWasStoppedTogetherWithTheHeadIsNotSilent) {
  JoinAll();
  StopFor(kSilence * 3 / 2, [] {});
  PingAll();
  for (const auto& member : members_) EXPECT_TRUE(member->Hear(Type::kPong).has_value());
  EXPECT_EQ(Alive(), kMembers);
}

TEST_F(Crowd, WhoIsSilentIsDeadAndNobodyElseIs) {
  JoinAll();
  const auto deadline = NodeThread::Now() + 10 * kSilence;
  while (Alive() == kMembers && NodeThread::Now() < deadline) {
    for (size_t i = 1; i < members_.size(); ++i) {
      members_[i]->SayAll(FrameText({MessageOf(Type::kPing)}));
      members_[i]->Hear(Type::kPong);
    }
  }
  EXPECT_EQ(Alive(), kMembers - 1);
}

// ---- endpoints that throw

// An endpoint that cannot dial and drops all frames.
class Broke : public Endpoint {
 public:
  explicit Broke(std::atomic<int>* dials) : dials_(dials) {}
  const std::string& address() const override { return address_; }
  void Dial(uint64_t, const std::string&) override {
    ++*dials_;
    throw std::bad_alloc();
  }
  void Send(uint64_t, Frame) override {}
  void Close(uint64_t) override {}
  void ReleaseSource(const void*, size_t) override {}
  void ReleaseTarget(const void*, size_t) override {}
  size_t Poll(LinkHandler*, size_t) override { return 0; }
  bool Wait(int64_t nanoseconds) override {
    std::unique_lock lock(mutex_);
    return woken_.wait_for(lock, std::chrono::nanoseconds(nanoseconds)) ==
           std::cv_status::no_timeout;
  }
  void Wake() override { woken_.notify_all(); }
  TrafficStats Traffic(uint64_t) const override { return {}; }

 private:
  std::atomic<int>* const dials_;
  const std::string address_;
  std::mutex mutex_;
  std::condition_variable woken_;
};

std::unique_ptr<Node> SomeServer(BufferPool* pool) {
  MemberOptions member;
  member.role = Role::kServer;
  member.rank = 0;
  member.process = 1;
  return std::make_unique<ServerNode>(member, ShardOptions{}, pool);
}

template <typename Condition>
bool HoldsSoon(Condition condition) {
  for (int i = 0; i < 5000 && !condition(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return condition();
}

TEST(NodeThread, ADialThatThrowsIsALinkThatIsClosedAndDialedAgain) {
  BufferPool pool;
  std::atomic<int> dials{0}, told{0};
  NodeThreadOptions options;
  options.address_of = [](const Peer&) { return "somewhere"; };
  options.failed = [&](const Peer&, const Error& error) {
    told += error.code() == Code::kResourceExhausted ? 1 : 0;
  };
  NodeThread thread(SomeServer(&pool), std::make_unique<Broke>(&dials), options);
  thread.Start();
  EXPECT_TRUE(HoldsSoon([&] { return dials >= 2; }));
  EXPECT_GE(told, 1);
}

TEST(NodeThread, WhatACallerThrowsReachesTheCallerAlone) {
  BufferPool pool;
  std::atomic<int> dials{0}, changes{0};
  NodeThreadOptions options;
  options.address_of = [](const Peer&) { return "somewhere"; };
  NodeThread thread(SomeServer(&pool), std::make_unique<Broke>(&dials), options);
  thread.OnChange([&](Node&) { ++changes; });
  thread.Start();
  const int before = changes;
  EXPECT_THROW(thread.Run([](Node&, Time) { throw Error(Code::kInternal, "of the caller"); }),
               Error);
  EXPECT_GT(changes, before) << "what it did before is dealt with";
  EXPECT_EQ(thread.Run([](Node&, Time) { return 5; }), 5);
}

// An endpoint whose next poll lasts until somebody wakes it.  The poll then forgets that wake, as a
// reactor may.
class Caught final : public Broke {
 public:
  using Broke::Broke;
  size_t Poll(LinkHandler*, size_t) override {
    if (!is_armed) return 0;
    is_in_poll = true;
    while (wakes == 0) std::this_thread::yield();
    is_armed = false;
    return 0;
  }
  bool Wait(int64_t nanoseconds) override {
    if (wakes > 0) ++waits_after_wake;
    return Broke::Wait(nanoseconds);
  }
  void Wake() override {
    ++wakes;
    Broke::Wake();
  }

  std::atomic<bool> is_armed{false}, is_in_poll{false};
  std::atomic<int> wakes{0}, waits_after_wake{0};
};

TEST(NodeThread, ACallerWhoCatchesItInAPollDoesNotAwaitItsSleep) {
  BufferPool pool;
  std::atomic<int> dials{0};
  NodeThreadOptions options;
  options.address_of = [](const Peer&) { return "somewhere"; };
  auto endpoint = std::make_unique<Caught>(&dials);
  Caught& caught = *endpoint;
  NodeThread thread(SomeServer(&pool), std::move(endpoint), options);
  thread.Start();
  caught.is_armed = true;
  ASSERT_TRUE(HoldsSoon([&] { return caught.is_in_poll.load(); }));
  EXPECT_TRUE(thread.PollUntil([] { return true; }, kMillisecond));
  EXPECT_EQ(caught.waits_after_wake, 0);
}

TEST(NodeThread, AHookThatThrowsBreaksItAndIsToldOnceAndTheProcessLives) {
  BufferPool pool;
  std::atomic<int> dials{0}, broken{0};
  NodeThreadOptions options;
  options.address_of = [](const Peer&) { return "somewhere"; };
  options.broken = [&](const Error& error) {
    broken += error.code() == Code::kResourceExhausted ? 1 : 100;
  };
  NodeThread thread(SomeServer(&pool), std::make_unique<Broke>(&dials), options);
  thread.OnChange([](Node&) { throw std::bad_alloc(); });
  thread.Start();
  EXPECT_TRUE(HoldsSoon([&] { return broken == 1; }));
  thread.Run([](Node&, Time) {});
  EXPECT_EQ(broken, 1);
}

}  // namespace
}  // namespace tkv
