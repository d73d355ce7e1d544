#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <functional>
#include <thread>

#include "base/format.h"
#include "transport/socket/address.h"
#include "transport/socket/endpoint.h"

namespace tkv {
namespace {

namespace asio = boost::asio;

struct Handler final : LinkHandler {
  uint64_t last = 100;
  std::vector<uint64_t> accepted, opened;
  std::vector<std::pair<uint64_t, Error>> closed;
  uint64_t Accepted() override {
    accepted.push_back(++last);
    return last;
  }
  void Opened(uint64_t link) override { opened.push_back(link); }
  void Closed(uint64_t link, const Error& reason) override { closed.emplace_back(link, reason); }
  std::vector<Block> land;
  size_t received = 0;
  std::vector<Block> Land(uint64_t, std::span<const std::byte>, const std::byte*) override {
    return land;
  }
  void Received(uint64_t) override { ++received; }
};

struct Side {
  explicit Side(SocketOptions options) : endpoint(OpenSockets(std::move(options))) {}
  std::unique_ptr<SocketEndpoint> endpoint;
  Handler handler;
};

SocketOptions Options(const std::string& who, const std::string& token,
                      std::vector<std::string> listen = {}) {
  SocketOptions options;
  options.who = who;
  options.token = token;
  options.listen = std::move(listen);
  return options;
}

template <typename Condition>
bool Until(Side* a, Side* b, Condition condition, int milliseconds = 3000) {
  for (int i = 0; i < milliseconds && !condition(); ++i) {
    if (a->endpoint->Poll(&a->handler, 16) + b->endpoint->Poll(&b->handler, 16) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return condition();
}

std::string FirstReason(const Handler& handler) {
  return handler.closed.empty() ? "" : handler.closed[0].second.what();
}

TEST(Address, IsWhatItsTextSays) {
  const auto addresses = ParseAddresses("unix:host/name,tcp:10.0.0.5:80,tcp:[::1]:7");
  ASSERT_EQ(addresses.size(), 3U);
  EXPECT_EQ(addresses[0].name, "name");
  EXPECT_EQ(addresses[1].host, "10.0.0.5");
  EXPECT_EQ(addresses[1].port, 80);
  EXPECT_EQ(addresses[2].host, "::1");
  EXPECT_EQ(ToString(addresses[2]), "tcp:[::1]:7");
  for (const char* bad : {"", "tcp:", "tcp:host", "tcp:host:", "tcp:host:70000", "tcp::80",
                          "unix:", "unix:name", "http://x", "tcp:a:1,", "tcp:1:2:3"}) {
    EXPECT_THROW(ParseAddresses(bad), Error) << bad;
  }
}

TEST(Sockets, ATokenLetsInThoseWhoHaveIt) {
  Side server(Options("server 0", "secret", {"tcp:127.0.0.1:0", "unix"}));
  Side client(Options("worker 1", "secret"));
  const std::string& both = server.endpoint->address();
  client.endpoint->Dial(1, both.substr(0, both.find(',')));
  client.endpoint->Dial(2, both.substr(both.find(',') + 1));
  EXPECT_TRUE(Until(&server, &client, [&] { return client.handler.opened.size() == 2; }));
  EXPECT_EQ(server.handler.accepted.size(), 2U);
}

TEST(Sockets, AnotherTokenIsRefusedForGoodOnBothSides) {
  Side server(Options("server 0", "secret", {"tcp:127.0.0.1:0"}));
  for (const char* token : {"Secret", ""}) {
    Side client(Options("worker 1", token));
    client.endpoint->Dial(1, server.endpoint->address());
    ASSERT_TRUE(Until(&server, &client, [&] { return !client.handler.closed.empty(); }));
    EXPECT_EQ(client.handler.closed[0].second.code(), Code::kUnauthenticated)
        << FirstReason(client.handler);
    EXPECT_TRUE(client.handler.opened.empty());
  }
  EXPECT_TRUE(server.handler.accepted.empty());
}

TEST(Sockets, WithoutATokenTheErrorSaysHowToMakeOne) {
  EXPECT_THROW(
      {
        try {
          Side(Options("server 0", "", {"tcp:127.0.0.1:0"}));
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("TKV_TOKEN_FILE"), std::string::npos);
          throw;
        }
      },
      Error);
}

TEST(Sockets, AnotherVersionIsRefusedInBothDirections) {
  for (const uint32_t version : {uint32_t{2}, uint32_t{4}}) {
    SocketOptions options = Options("server 0", "secret", {"tcp:127.0.0.1:0"});
    options.version = 3;
    Side server(options);
    options = Options("worker 2", "secret");
    options.version = version;
    Side client(options);
    client.endpoint->Dial(1, server.endpoint->address());
    ASSERT_TRUE(Until(&server, &client, [&] { return !client.handler.closed.empty(); }));
    EXPECT_EQ(client.handler.closed[0].second.code(), Code::kFailedPrecondition);
    EXPECT_EQ(FirstReason(client.handler),
              Format("worker 2 (127.0.0.1) speaks {}, this server 3; install the same tensorkv",
                     version));
    EXPECT_TRUE(server.handler.accepted.empty());
  }
}

// Somebody who is no TensorKV at all.
class Stranger {
 public:
  explicit Stranger(const std::string& address) : socket_(context_) {
    const SocketAddress there = ParseAddresses(address).front();
    socket_.connect({asio::ip::make_address(there.host), there.port});
  }
  void Say(const std::string& bytes) { asio::write(socket_, asio::buffer(bytes), failed_); }
  bool is_closed() {
    char bytes[64];
    socket_.non_blocking(true);
    for (;;) {
      boost::system::error_code error;
      const size_t got = socket_.read_some(asio::buffer(bytes), error);
      if (error == asio::error::would_block) return false;
      if (error || got == 0) return true;
    }
  }

 private:
  asio::io_context context_;
  asio::ip::tcp::socket socket_;
  boost::system::error_code failed_;
};

TEST(Sockets, GarbageAndSilenceEndTheConnectionAndNothingElse) {
  SocketOptions options = Options("server 0", "secret", {"tcp:127.0.0.1:0"});
  options.handshake_nanoseconds = 200'000'000;
  Side server(options);
  Side client(Options("worker 1", "secret"));
  client.endpoint->Dial(1, server.endpoint->address());
  ASSERT_TRUE(Until(&server, &client, [&] { return client.handler.opened.size() == 1; }));
  Stranger loud(server.endpoint->address()), silent(server.endpoint->address());
  loud.Say("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n, and much more than a greeting has");
  EXPECT_TRUE(Until(&server, &client, [&] { return loud.is_closed(); }));
  EXPECT_TRUE(Until(&server, &client, [&] { return silent.is_closed(); }));
  EXPECT_TRUE(client.handler.closed.empty());
  EXPECT_TRUE(server.handler.closed.empty());
  EXPECT_EQ(server.handler.accepted.size(), 1U);
}

// Passes on what a dialer says, one byte of it changed, and what it is answered.
class Relay {
 public:
  Relay(const std::string& to, size_t changed)
      : acceptor_(context_, {asio::ip::make_address("127.0.0.1"), 0}), changed_(changed) {
    const SocketAddress target = ParseAddresses(to).front();
    target_ = {asio::ip::make_address(target.host), target.port};
    thread_ = std::thread([this] { Run(); });
  }
  ~Relay() { thread_.join(); }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  std::string address() const {
    return Format("tcp:127.0.0.1:{}", acceptor_.local_endpoint().port());
  }

 private:
  void Run() {
    asio::ip::tcp::socket in(context_), out(context_);
    acceptor_.accept(in);
    out.connect(target_);
    std::thread back([&] { Copy(&out, &in, SIZE_MAX); });
    Copy(&in, &out, changed_);
    back.join();
  }
  static void Copy(asio::ip::tcp::socket* from, asio::ip::tcp::socket* to, size_t changed) {
    std::array<char, 4096> bytes;
    boost::system::error_code error;
    for (size_t total = 0; !error;) {
      const size_t got = from->read_some(asio::buffer(bytes), error);
      if (error) break;
      if (changed >= total && changed < total + got) bytes[changed - total] ^= 4;
      total += got;
      asio::write(*to, asio::buffer(bytes, got), error);
    }
    from->shutdown(asio::ip::tcp::socket::shutdown_both, error);
    to->shutdown(asio::ip::tcp::socket::shutdown_both, error);
  }

  asio::io_context context_;
  asio::ip::tcp::acceptor acceptor_;
  asio::ip::tcp::endpoint target_;
  const size_t changed_;
  std::thread thread_;
};

Frame PushOf(std::vector<std::byte>* value) {
  Message push;
  push.type = Type::kPush;
  push.body = {value->data(), value->size(), nullptr};
  FrameBuilder builder;
  builder.Add(std::move(push));
  return builder.Finish(0, 0);
}

TEST(Sockets, AChangedBitOfAValueEndsTheConnectionWhereValuesAreChecked) {
  for (const bool is_checked : {true, false}) {
    Side server(Options("server 0", "secret", {"tcp:127.0.0.1:0"}));
    SocketOptions options = Options("worker 1", "secret");
    options.check_bodies = is_checked;
    std::vector<std::byte> value(200'000, std::byte{7}), landed(value.size());
    server.handler.land = {{landed.data(), landed.size(), nullptr}};
    {
      const Relay relay(server.endpoint->address(), 150'000);
      Side client(options);
      client.endpoint->Dial(1, relay.address());
      ASSERT_TRUE(Until(&server, &client, [&] { return client.handler.opened.size() == 1; }));
      client.endpoint->Send(1, PushOf(&value));
      ASSERT_TRUE(Until(&server, &client, [&] {
        return server.handler.received == 1 || !server.handler.closed.empty();
      }));
      EXPECT_EQ(server.handler.received, is_checked ? 0U : 1U);
    }
    EXPECT_NE(landed, value);
    if (!is_checked) continue;
    EXPECT_NE(FirstReason(server.handler).find("the check does not match"), std::string::npos);
  }
}

TEST(Sockets, AReplayedProofIsNoProof) {
  Side server(Options("server 0", "secret", {"tcp:127.0.0.1:0"}));
  HandshakeOptions honest{"worker 1", "secret", false, ProtocolVersion(), "there"};
  Handshake dialer(honest, true),
      acceptor({"server 0", "secret", false, ProtocolVersion(), ""}, false);
  const std::string greeting = dialer.TakeOutput();
  acceptor.Receive(greeting.substr(0, sizeof(Greeting)));
  acceptor.Receive(greeting.substr(sizeof(Greeting)));
  const std::string answer = acceptor.TakeOutput();
  dialer.Receive(answer.substr(0, sizeof(Greeting)));
  dialer.Receive(answer.substr(sizeof(Greeting)));
  const std::string proof = dialer.TakeOutput();
  acceptor.Receive(proof);
  ASSERT_TRUE(acceptor.done());
  Side nobody(Options("nobody", ""));
  Stranger thief(server.endpoint->address());
  thief.Say(greeting + proof);  // of another connection
  EXPECT_TRUE(Until(&server, &nobody, [&] { return thief.is_closed(); }));
  EXPECT_TRUE(server.handler.accepted.empty());
  // Nor is the acceptor's own proof one of the dialer's.
  Handshake reflected({"server 0", "secret", false, ProtocolVersion(), ""}, false);
  reflected.Receive(greeting.substr(0, sizeof(Greeting)));
  reflected.Receive(greeting.substr(sizeof(Greeting)));
  reflected.TakeOutput();
  reflected.Receive(acceptor.TakeOutput());
  EXPECT_FALSE(reflected.done());
}

TEST(Sockets, ManyStrangersLeaveRoomForAPeer) {
  SocketOptions options = Options("server 0", "secret", {"tcp:127.0.0.1:0"});
  options.strangers_max = 8;
  Side server(options);
  Side client(Options("worker 1", "secret"));
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 50; ++i) {
    crowd.push_back(std::make_unique<Stranger>(server.endpoint->address()));
    server.endpoint->Poll(&server.handler, 16);
  }
  client.endpoint->Dial(1, server.endpoint->address());
  EXPECT_TRUE(Until(&server, &client, [&] { return client.handler.opened.size() == 1; }));
}

TEST(Sockets, AConnectionThatIsCutIsTold) {
  Side server(Options("server 0", "", {"unix"}));
  auto client = std::make_unique<Side>(Options("worker 1", ""));
  Side other(Options("other", ""));
  client->endpoint->Dial(1, server.endpoint->address());
  ASSERT_TRUE(Until(&server, client.get(), [&] { return client->handler.opened.size() == 1; }));
  client.reset();
  EXPECT_TRUE(Until(&server, &other, [&] { return server.handler.closed.size() == 1; }));
  EXPECT_EQ(server.handler.closed[0].second.code(), Code::kUnavailable);
}

TEST(Sockets, AreNotInheritedByProcessesThatAreStarted) {
  Side server(Options("server 0", "secret", {"unix", "tcp:127.0.0.1:0"}));
  Side client(Options("worker 1", "secret"));
  const std::string& both = server.endpoint->address();
  client.endpoint->Dial(1, both.substr(0, both.find(',')));
  client.endpoint->Dial(2, both.substr(both.find(',') + 1));
  ASSERT_TRUE(Until(&server, &client, [&] { return server.handler.accepted.size() == 2; }));
  int sockets = 0;
  for (int file = 3; file < 1024; ++file) {
    struct stat status{};
    if (fstat(file, &status) != 0 || !S_ISSOCK(status.st_mode)) continue;
    ++sockets;
    EXPECT_NE(fcntl(file, F_GETFD) & FD_CLOEXEC, 0) << "file " << file;
  }
  EXPECT_GE(sockets, 6) << "two that listen, two that have dialed, two that were accepted";
}

TEST(Sockets, APortThatIsTakenIsNamed) {
  Side first(Options("server 0", "secret", {"tcp:127.0.0.1:0"}));
  try {
    Side second(Options("server 1", "secret", {first.endpoint->address()}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kAlreadyExists);
    EXPECT_NE(std::string(error.what()).find(first.endpoint->address()), std::string::npos);
  }
}

}  // namespace
}  // namespace tkv
