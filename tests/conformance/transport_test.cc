// Conformance of every transport.  A line at the end adds a transport to the suite.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <thread>

#include "base/arena.h"
#include "base/format.h"
#include "job/failpoints.h"
#include "transport/address.h"
#include "transport/inproc/network.h"
#include "transport/socket/endpoint.h"
#include "wire/frame.h"

namespace tkv {
namespace {

// A transport under test: endpoints that can reach each other by address.
struct Bench {
  virtual ~Bench() = default;
  virtual std::unique_ptr<Endpoint> Listen(const std::string& name) = 0;
  // Returns the address by which other endpoints reach the endpoint `name`.
  virtual std::string AddressOf(const std::string& name) = 0;
};

using MakeBench = std::function<std::unique_ptr<Bench>()>;

struct Recorder final : LinkHandler {
  uint64_t next_link = 1000;
  std::vector<uint64_t> accepted, opened, closed;
  std::vector<std::string> heads;
  std::vector<std::vector<std::byte>> bodies;
  std::function<std::vector<Block>(const std::string&)> land;
  std::vector<Block> landing;
  bool may_go_on = true;

  bool MayGoOn() override { return may_go_on; }
  uint64_t Accepted() override {
    accepted.push_back(++next_link);
    return next_link;
  }
  void Opened(uint64_t link) override { opened.push_back(link); }
  void Closed(uint64_t link, const Error&) override { closed.push_back(link); }
  std::vector<Block> Land(uint64_t, std::span<const std::byte> head, const std::byte*) override {
    heads.emplace_back(reinterpret_cast<const char*>(head.data()), head.size());
    landing = land ? land(heads.back()) : std::vector<Block>{};
    return landing;
  }
  void Received(uint64_t) override {
    for (const Block& block : landing) {
      if (block) bodies.emplace_back(block.data, block.data + block.size);
    }
  }
};

class TransportConformance : public ::testing::TestWithParam<MakeBench> {
 protected:
  void SetUp() override {
    bench_ = GetParam()();
    server_ = bench_->Listen("server");
    client_ = bench_->Listen("client");
  }
  // Calls `poll`, which returns the number of events that it has delivered, until the condition
  // holds.  Returns false after 20 s.
  template <typename Condition, typename Poll>
  static bool Until(Condition condition, Poll poll) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition() && std::chrono::steady_clock::now() < end) {
      if (poll() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return condition();
  }
  // Delivers events on both sides until the condition holds.
  template <typename Condition>
  bool Until(Condition condition) {
    return Until(condition, [this] {
      return server_->Poll(&at_server_, 16) + client_->Poll(&at_client_, 16);
    });
  }
  void Connect() {
    client_->Dial(7, bench_->AddressOf("server"));
    ASSERT_TRUE(Until([&] { return at_client_.opened.size() + at_server_.accepted.size() == 2; }));
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

// Both links have events waiting.
TEST_P(TransportConformance, AHandlerThatHasHadEnoughGetsOneEventAtATime) {
  Connect();
  client_->Dial(8, bench_->AddressOf("server"));
  ASSERT_TRUE(Until([&] { return at_client_.opened.size() + at_server_.accepted.size() == 4; }));
  at_server_.may_go_on = false;
  for (const uint64_t link : {7, 8}) client_->Send(link, FrameOf("word"));
  size_t most = 0;
  const auto poll = [&] {
    const size_t sent = client_->Poll(&at_client_, 16);
    const size_t before = at_server_.heads.size();
    const size_t received = server_->Poll(&at_server_, 16);
    most = std::max(most, at_server_.heads.size() - before);
    return sent + received;
  };
  EXPECT_TRUE(Until([&] { return at_server_.heads.size() == 2; }, poll)) << "nothing is lost";
  EXPECT_EQ(most, 1U);
}

// Takes back the sources of many frames one after another; each must cost the same.
TEST_P(TransportConformance, ASourceIsTakenBackAmongManyOthers) {
  Connect();
  constexpr size_t kCount = 2000;
  std::vector<std::vector<std::byte>> sources(kCount, std::vector<std::byte>(8));
  at_server_.land = [](const std::string&) {
    const auto owner = std::make_shared<std::array<std::byte, 8>>();
    return std::vector<Block>{{owner->data(), owner->size(), owner}};
  };
  for (size_t i = 0; i < kCount; ++i) {
    std::memcpy(sources[i].data(), &i, sizeof i);
    Message push;
    push.type = Type::kPush;
    push.body = {sources[i].data(), sources[i].size(), nullptr};
    FrameBuilder builder;
    builder.Add(std::move(push));
    client_->Send(7, builder.Finish(0, 0));
  }
  for (auto& source : sources) {
    client_->ReleaseSource(source.data(), source.size());
    std::fill(source.begin(), source.end(), std::byte{0xAB});
  }
  ASSERT_TRUE(Until([&] { return at_server_.bodies.size() == kCount; }));
  for (size_t i = 0; i < kCount; ++i) {
    size_t value = 0;
    std::memcpy(&value, at_server_.bodies[i].data(), sizeof value);
    EXPECT_EQ(value, i);
  }
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
  std::vector<std::byte> source(500'000);
  at_server_.land = [&](const std::string& head) {
    return std::vector<Block>(head.find("after") == std::string::npos ? 1 : 0,
                              Block{nullptr, source.size(), nullptr});
  };
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
  client_->Dial(8, bench_->AddressOf("nobody"));
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
  const auto poll = [this] { return server_->Poll(&at_server_, 16); };
  EXPECT_TRUE(Until([&] { return !at_server_.closed.empty(); }, poll));
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
  client_->Dial(9, bench_->AddressOf("server"));
  EXPECT_TRUE(server_->Wait(5'000'000'000));
}

// Returns a frame whose body is in `source`.
Frame FrameWith(const std::vector<std::byte>& source) {
  Message push;
  push.type = Type::kPush;
  push.body = {source.data(), source.size(), nullptr};
  FrameBuilder builder;
  builder.Add(std::move(push));
  return builder.Finish(0, 0);
}

TEST_P(TransportConformance, ManyBodiesOfAllSizesGoBothWays) {
  Connect();
  const std::vector<size_t> sizes = {1, 7, 4096, 65'536, 1'000'003, 3, 20'000'000, 64};
  std::vector<std::vector<std::byte>> sources;
  for (const size_t size : sizes) {
    sources.emplace_back(size);
    for (size_t i = 0; i < size; ++i) sources.back()[i] = static_cast<std::byte>(i * 31 + size);
  }
  std::deque<std::vector<std::byte>> landed_at_server, landed_at_client;
  const auto landing = [&sizes](std::deque<std::vector<std::byte>>* landed) {
    return [landed, &sizes](const std::string&) {
      landed->emplace_back(sizes[landed->size()]);
      return std::vector<Block>{{landed->back().data(), landed->back().size(), nullptr}};
    };
  };
  at_server_.land = landing(&landed_at_server);
  at_client_.land = landing(&landed_at_client);
  for (const auto& source : sources) {
    client_->Send(7, FrameWith(source));
    server_->Send(at_server_.accepted[0], FrameWith(source));
  }
  ASSERT_TRUE(Until([&] {
    return at_server_.bodies.size() == sizes.size() && at_client_.bodies.size() == sizes.size();
  }));
  EXPECT_TRUE(std::equal(sources.begin(), sources.end(), at_server_.bodies.begin()));
  EXPECT_TRUE(std::equal(sources.begin(), sources.end(), at_client_.bodies.begin()));
}

TEST_P(TransportConformance, MemoryThatIsTakenBackIsNeitherReadNorWritten) {
  Connect();
  std::vector<std::byte> source(30'000'000, std::byte{1}), target(source.size());
  at_server_.land = [&](const std::string&) {
    return std::vector<Block>{{target.data(), target.size(), nullptr}};
  };
  client_->Send(7, FrameWith(source));
  server_->Poll(&at_server_, 1);  // a part of it may have arrived
  client_->ReleaseSource(source.data(), source.size());
  std::fill(source.begin(), source.end(), std::byte{2});
  ASSERT_TRUE(Until([&] { return at_server_.bodies.size() == 1; }));
  EXPECT_EQ(std::count(target.begin(), target.end(), std::byte{1}),
            static_cast<ptrdiff_t>(target.size()));

  client_->Send(7, FrameWith(source));
  ASSERT_TRUE(Until([&] { return at_server_.heads.size() == 2; }));
  if (at_server_.bodies.size() == 1) {  // it arrives piece by piece: the rest is dropped
    server_->ReleaseTarget(target.data(), target.size());
    const std::vector<std::byte> before = target;
    client_->Send(7, FrameOf("after"));
    at_server_.land = nullptr;
    ASSERT_TRUE(Until([&] { return at_server_.heads.size() == 3; }));
    EXPECT_EQ(target, before);
    EXPECT_NE(std::count(target.begin(), target.end(), std::byte{1}), 0);
  }
}

TEST_P(TransportConformance, ASourceThatIsTakenBackStopsNothingThatLandsThere) {
  Connect();
  const std::vector<std::byte> source(30'000'000, std::byte{1});
  std::vector<std::byte> target(source.size());
  at_server_.land = [&](const std::string&) {
    return std::vector<Block>{{target.data(), target.size(), nullptr}};
  };
  client_->Send(7, FrameWith(source));
  ASSERT_TRUE(Until([&] { return at_server_.heads.size() == 1; }));
  server_->ReleaseSource(target.data(), target.size());  // of an earlier call
  ASSERT_TRUE(Until([&] { return at_server_.bodies.size() == 1; }));
  EXPECT_EQ(target, source);
}

TEST_P(TransportConformance, ACloseLeavesNoFrameThatRefersToMemory) {
  Connect();
  auto source = std::make_shared<std::vector<std::byte>>(30'000'000);
  Frame frame = FrameWith(*source);
  frame.bodies[0].owner = source;
  client_->Send(7, std::move(frame));
  client_->Close(7);
  for (int i = 0; i < 100; ++i) server_->Poll(&at_server_, 16);
  EXPECT_EQ(source.use_count(), 1);
}

// The receiver has no memory left.  Its transport says so or ends the link; the sender must go on.
TEST_P(TransportConformance, AReceiverWithoutMemoryKeepsNoSenderWaiting) {
  Connect();
  const std::vector<std::byte> source(1000, std::byte{1});
  at_server_.land = [](const std::string&) -> std::vector<Block> { throw std::bad_alloc(); };
  client_->Send(7, FrameWith(source));
  bool is_known = false;
  try {
    is_known = Until([&] { return at_server_.closed.size() == 1; });
  } catch (const std::bad_alloc&) {
    is_known = true;
  }
  EXPECT_TRUE(is_known);
  client_->ReleaseSource(source.data(), source.size());
  client_->Close(7);
}

struct InprocBench final : Bench {
  InprocNetwork network;
  std::unique_ptr<Endpoint> Listen(const std::string& name) override {
    return network.Listen(name);
  }
  std::string AddressOf(const std::string& name) override { return name; }
};

struct SocketBench final : Bench {
  SocketBench(std::string listens_at, bool shares, bool checks = false, UseTls tls = UseTls::kNever)
      : where(std::move(listens_at)), shares_memory(shares), checks_bodies(checks), use_tls(tls) {}
  std::string where;
  bool shares_memory, checks_bodies;
  UseTls use_tls;
  std::map<std::string, std::string> addresses;
  std::unique_ptr<Endpoint> Listen(const std::string& name) override {
    SocketOptions options;
    options.who = name;
    options.listen = {where};
    if (where != "unix") options.token = "a token of this test";
    options.share_memory = shares_memory;
    std::string why;
    if (shares_memory) options.arena = Arena::Open(&why);
    options.check_bodies = checks_bodies;
    options.tls = use_tls;
    auto endpoint = OpenSockets(options);
    addresses[name] = endpoint->address();
    if (!checks_bodies) return endpoint;
    // Failpoints that do not apply change nothing.
    return WithFailpoints(std::move(endpoint), FailpointsOf("x", "x:sent:STATUS:1:kill"));
  }
  std::string AddressOf(const std::string& name) override {
    if (addresses.contains(name)) return addresses[name];
    return where == "unix" ? Format("unix:{}/nobody", HostId()) : "tcp:127.0.0.1:1";
  }
};

// A transport of the build, opened as a job opens it.
struct FactoryBench final : Bench {
  explicit FactoryBench(const Transport* t) : transport(t) {}
  std::unique_ptr<Endpoint> Listen(const std::string& name) override {
    EndpointOptions options;
    options.who = name;
    options.token = "the secret of this test";
    options.listen = transport->ListenAt({false, "job", "tcp:127.0.0.1:1", true});
    std::string why;
    if (transport->shares_memory()) options.arena = Arena::Open(&why);
    auto endpoint = transport->Open(std::move(options));
    EXPECT_TRUE(transport->CanReach(endpoint->address()));
    addresses[name] = endpoint->address();
    return endpoint;
  }
  std::string AddressOf(const std::string& name) override {
    return addresses.contains(name) ? addresses[name] : "tcp:127.0.0.1:1";
  }
  const Transport* const transport;
  std::map<std::string, std::string> addresses;
};

std::vector<MakeBench> FactoryBenches() {
  std::vector<MakeBench> benches;
  for (const Transport* const transport : BuiltTransports()) {
    benches.emplace_back([transport] { return std::make_unique<FactoryBench>(transport); });
  }
  return benches;
}

INSTANTIATE_TEST_SUITE_P(Built, TransportConformance, ::testing::ValuesIn(FactoryBenches()));
INSTANTIATE_TEST_SUITE_P(Inproc, TransportConformance,
                         ::testing::Values([] { return std::make_unique<InprocBench>(); }));
INSTANTIATE_TEST_SUITE_P(Unix, TransportConformance, ::testing::Values([] {
                           return std::make_unique<SocketBench>("unix", false);
                         }));
INSTANTIATE_TEST_SUITE_P(UnixAndSharedMemory, TransportConformance, ::testing::Values([] {
                           return std::make_unique<SocketBench>("unix", true);
                         }));
INSTANTIATE_TEST_SUITE_P(Tcp, TransportConformance, ::testing::Values([] {
                           return std::make_unique<SocketBench>("tcp:127.0.0.1:0", false);
                         }));
INSTANTIATE_TEST_SUITE_P(TcpWithTls, TransportConformance, ::testing::Values([] {
                           return std::make_unique<SocketBench>("tcp:127.0.0.1:0", false, false,
                                                                UseTls::kAlways);
                         }));
INSTANTIATE_TEST_SUITE_P(TcpWithChecksAndFailpoints, TransportConformance, ::testing::Values([] {
                           return std::make_unique<SocketBench>("tcp:127.0.0.1:0", false, true);
                         }));

}  // namespace
}  // namespace tkv
