#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <thread>
#include <tuple>

#include "base/format.h"
#include "tests/frames.h"
#include "tests/scarce_memory.h"
#include "transport/address.h"
#include "transport/socket/endpoint.h"
#include "transport/socket/process_watch.h"
#include "transport/socket/resolver.h"
#include "transport/socket/tls.h"

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
  std::unique_ptr<Endpoint> endpoint;
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

// No later bytes cause another turn.
TEST(Sockets, AFrameThatEndsWithATurnIsHandled) {
  SocketOptions options = Options("server 0", "", {"unix"});
  options.budgets.turn_bytes_max = 100'000;
  options.share_memory = false;
  Side server(options);
  Side client(Options("worker 1", ""));
  client.endpoint->Dial(1, server.endpoint->address());
  ASSERT_TRUE(Until(&server, &client, [&] { return client.handler.opened.size() == 1; }));
  const std::vector<std::byte> body(101'000);
  size_t sent = 0;
  for (size_t bytes = 99'000; bytes <= body.size(); bytes += 250) {
    server.handler.land = {{nullptr, bytes, nullptr}};
    Message push;
    push.type = Type::kPush;
    push.body = {body.data(), bytes, nullptr};
    FrameBuilder builder;
    builder.Add(std::move(push));
    client.endpoint->Send(1, builder.Finish(0, 0));
    ++sent;
    ASSERT_TRUE(Until(&server, &client, [&] { return server.handler.received == sent; })) << bytes;
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

// Opens a connection to a server that has memory for so many allocations and lacks it once.
// Returns true if memory was lacking.
bool LacksMemoryWhileItOpens(Side* server, Side* client, const std::string& address,
                             int allocations) {
  int left = allocations;
  const auto has_ended = [&] {
    return !client->handler.opened.empty() || !client->handler.closed.empty();
  };
  client->endpoint->Dial(1, address);
  for (int i = 0; i < 3000 && !has_ended(); ++i) {
    const size_t count = client->endpoint->Poll(&client->handler, 16);
    test::allocations_left = left;
    const size_t served = server->endpoint->Poll(&server->handler, 16);
    left = std::exchange(test::allocations_left, -1);
    if (count + served == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(has_ended()) << allocations;
  return left < 0;
}

TEST(Sockets, ALackOfMemoryCostsOneConnectionAtMost) {
  for (const bool is_tcp : {false, true}) {
    std::vector<std::string> told;
    SocketOptions options = Options("head", "secret", {is_tcp ? "tcp:127.0.0.1:0" : "unix"});
    options.stands = [&told](const std::string& text) { told.push_back(text); };
    Side server(options);
    server.handler.closed.reserve(1000);
    const std::string& address = server.endpoint->address();
    Side first(Options("worker 0", "secret"));
    first.endpoint->Dial(1, address);
    ASSERT_TRUE(Until(&server, &first, [&] { return first.handler.opened.size() == 1; }));
    const auto ping = [&] {
      const size_t received = server.handler.received;
      FrameBuilder builder;
      builder.Add(MessageOf(Type::kPing));
      first.endpoint->Send(1, builder.Finish(0, 0));
      EXPECT_TRUE(Until(&server, &first, [&] { return server.handler.received > received; }));
    };
    ping();
    int allocations = 0;
    size_t lost = 0;
    for (bool has_lacked = true; has_lacked; ++allocations) {
      ASSERT_LT(allocations, 1000);
      Side client(Options("worker 1", "secret"));
      has_lacked = LacksMemoryWhileItOpens(&server, &client, address, allocations);
      lost += client.handler.closed.size();
      EXPECT_TRUE(first.handler.closed.empty()) << allocations;
    }
    EXPECT_GT(allocations, 10);
    EXPECT_GT(lost, 5U);
    EXPECT_FALSE(told.empty());
    for (const std::string& text : told) {
      EXPECT_NE(text.find("connection: Cannot allocate memory: connections="), std::string::npos)
          << text;
    }
    ping();
  }
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
    EXPECT_EQ(
        FirstReason(client.handler),
        Format("{} speaks protocol 3 ({}), worker 2 protocol {} ({}); upgrade tensorkv where {} "
               "runs",
               server.endpoint->address(), PackageName(), version, PackageName(),
               version < 3 ? "worker 2" : server.endpoint->address()));
    EXPECT_TRUE(server.handler.accepted.empty());
  }
}

// A peer that does not speak TensorKV's protocol.
class Stranger {
 public:
  explicit Stranger(const std::string& address) : socket_(context_) {
    const PeerAddress there = ParseAddresses(address).front();
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
  options.budgets.handshake_nanoseconds = 200'000'000;
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

// A relay between a dialer and an acceptor that changes bits of one byte from the dialer.
class Relay {
 public:
  Relay(const std::string& to, size_t changed, char bits = 4)
      : acceptor_(context_, {asio::ip::make_address("127.0.0.1"), 0}),
        changed_(changed),
        bits_(bits) {
    const PeerAddress target = ParseAddresses(to).front();
    target_ = {asio::ip::make_address(target.host), target.port};
    thread_ = std::thread([this] { Run(); });
  }
  ~Relay() { heard(); }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  std::string address() const {
    return Format("tcp:127.0.0.1:{}", acceptor_.local_endpoint().port());
  }
  // Returns the dialer's bytes when both sides have closed.
  const std::string& heard() {
    if (thread_.joinable()) thread_.join();
    return heard_;
  }

 private:
  void Run() {
    asio::ip::tcp::socket in(context_), out(context_);
    acceptor_.accept(in);
    out.connect(target_);
    std::thread back([&] { Copy(&out, &in, SIZE_MAX, nullptr); });
    Copy(&in, &out, changed_, &heard_);
    back.join();
  }
  void Copy(asio::ip::tcp::socket* from, asio::ip::tcp::socket* to, size_t changed,
            std::string* heard) const {
    std::array<char, 4096> bytes;
    boost::system::error_code error;
    for (size_t total = 0; !error;) {
      const size_t got = from->read_some(asio::buffer(bytes), error);
      if (error) break;
      if (heard != nullptr) heard->append(bytes.data(), got);
      if (changed >= total && changed < total + got) bytes[changed - total] ^= bits_;
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
  const char bits_;
  std::string heard_;
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

SocketOptions WithTls(SocketOptions options, UseTls tls) {
  options.tls = tls;
  return options;
}

TEST(Sockets, TlsHidesWhatTravelsAndIsCounted) {
  for (const UseTls client_tls : {UseTls::kAlways, UseTls::kBetweenHosts}) {
    // TLS is used if one side wants it.
    Side server(WithTls(Options("server 0", "secret", {"tcp:127.0.0.1:0"}), UseTls::kAlways));
    std::vector<std::byte> value(200'000, std::byte{'v'}), landed(value.size());
    server.handler.land = {{landed.data(), landed.size(), nullptr}};
    Relay relay(server.endpoint->address(), SIZE_MAX);
    {
      Side client(WithTls(Options("worker 1", "secret"), client_tls));
      client.endpoint->Dial(1, relay.address());
      ASSERT_TRUE(Until(&server, &client, [&] { return client.handler.opened.size() == 1; }));
      client.endpoint->Send(1, PushOf(&value));
      ASSERT_TRUE(Until(&server, &client, [&] { return server.handler.received == 1; }));
      const TrafficStats traffic = client.endpoint->Traffic(1);
      EXPECT_GT(traffic.encrypted_out_bytes, value.size());
      EXPECT_GT(traffic.wire_out_bytes, traffic.encrypted_out_bytes) << "the handshake before";
      EXPECT_GT(server.endpoint->Traffic(server.handler.accepted[0]).encrypted_in_bytes,
                value.size());
    }
    EXPECT_EQ(landed, value);
    ASSERT_TRUE(Until(&server, &server, [&] { return !server.handler.closed.empty(); }));
    EXPECT_EQ(relay.heard().find("vvvvvvvv"), std::string::npos);
  }
}

TEST(Sockets, WithinAHostTcpIsNotEncryptedUnlessSomebodyWantsIt) {
  Side server(Options("server 0", "secret", {"tcp:127.0.0.1:0"}));
  Side client(Options("worker 1", "secret"));
  client.endpoint->Dial(1, server.endpoint->address());
  ASSERT_TRUE(Until(&server, &client, [&] { return client.handler.opened.size() == 1; }));
  std::vector<std::byte> value(1000);
  client.endpoint->Send(1, PushOf(&value));
  EXPECT_EQ(client.endpoint->Traffic(1).encrypted_out_bytes, 0U);
  EXPECT_GT(client.endpoint->Traffic(1).wire_out_bytes, value.size());
}

TEST(Sockets, TlsThatOneSideWantsAndTheOtherHasOffIsRefusedForGood) {
  for (const bool server_wants : {true, false}) {
    const UseTls on = UseTls::kAlways, off = UseTls::kNever;
    Side server(
        WithTls(Options("server 0", "secret", {"tcp:127.0.0.1:0"}), server_wants ? on : off));
    Side client(WithTls(Options("worker 1", "secret"), server_wants ? off : on));
    client.endpoint->Dial(1, server.endpoint->address());
    ASSERT_TRUE(Until(&server, &client, [&] { return !client.handler.closed.empty(); }));
    EXPECT_EQ(client.handler.closed[0].second.code(), Code::kFailedPrecondition);
    EXPECT_EQ(FirstReason(client.handler),
              Format("{}; set the option tls (TKV_TLS) alike in all processes",
                     server_wants ? "worker 1 (127.0.0.1) has TLS off, server 0 wants it"
                                  : "server 0 has TLS off, worker 1 (127.0.0.1) wants it"));
    EXPECT_TRUE(server.handler.accepted.empty());
  }
}

TEST(Sockets, NobodyBetweenCanTakeTlsAway) {
  constexpr size_t kFlagsAt = offsetof(Greeting, flags);
  Side server(Options("server 0", "secret", {"tcp:127.0.0.1:0"}));
  const Relay relay(server.endpoint->address(), kFlagsAt, Greeting::kWantsTls);
  Side client(WithTls(Options("worker 1", "secret"), UseTls::kAlways));
  client.endpoint->Dial(1, relay.address());
  ASSERT_TRUE(Until(&server, &client, [&] { return !client.handler.closed.empty(); }));
  EXPECT_TRUE(client.handler.opened.empty());
  EXPECT_TRUE(server.handler.accepted.empty());
}

// OpenSSL itself is the other side: the records are those of TLS 1.3, in both directions.
TEST(Tls, IsThatOfOpenSsl) {
  static const std::string key(Tls::kKeyBytes, 'k');
  for (const bool dials : {true, false}) {
    int sockets[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets), 0);
    Tls ours(sockets[0], dials, key, 2);  // records per key
    const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_method()),
                                                               SSL_CTX_free);
    const auto session_of = [](SSL* ssl) {
      const unsigned char aes_128_gcm_sha256[] = {0x13, 0x01};
      SSL_SESSION* const session = SSL_SESSION_new();
      SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()),
                                  key.size());
      SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, aes_128_gcm_sha256));
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
      return session;
    };
    static const auto make_session = session_of;
    SSL_CTX_set_psk_use_session_callback(
        context.get(), [](SSL* ssl, const EVP_MD*, const unsigned char** id, size_t* bytes,
                          SSL_SESSION** session) {
          *id = reinterpret_cast<const unsigned char*>("tkv");
          *bytes = 3;
          *session = make_session(ssl);
          return 1;
        });
    SSL_CTX_set_psk_find_session_callback(
        context.get(), [](SSL* ssl, const unsigned char*, size_t, SSL_SESSION** session) {
          *session = make_session(ssl);
          return 1;
        });
    SSL_CTX_set_num_tickets(context.get(), 0);
    const std::unique_ptr<SSL, void (*)(SSL*)> theirs(SSL_new(context.get()), SSL_free);
    SSL_set_fd(theirs.get(), sockets[1]);
    if (dials) {
      SSL_set_accept_state(theirs.get());
    } else {
      SSL_set_connect_state(theirs.get());
    }
    bool is_done = false;
    for (int i = 0; i < 20 && !(is_done && SSL_is_init_finished(theirs.get())); ++i) {
      if (!is_done) is_done = ours.Shake() == Tls::Step::kDone;
      SSL_do_handshake(theirs.get());
    }
    ASSERT_TRUE(is_done && SSL_is_init_finished(theirs.get()));
    std::string said, heard;
    for (int i = 0; i < 40'000; ++i) said += static_cast<char>(i % 251);
    // Our side sends pieces of all sizes, OpenSSL records of 7,000 bytes.  Both are read in odd
    // portions, with frequent key updates.
    std::vector<iovec> pieces;
    for (size_t at = 0; at < said.size();) {
      const size_t part = std::min(said.size() - at, at % 5'000 + 1);
      pieces.push_back({said.data() + at, part});
      at += part;
    }
    EXPECT_EQ(ours.Send(pieces), static_cast<ssize_t>(said.size()));
    ours.Flush();
    for (char part[1'111]; heard.size() < said.size();) {
      const int got = SSL_read(theirs.get(), part, sizeof(part));
      ASSERT_GT(got, 0);
      heard.append(part, static_cast<size_t>(got));
    }
    EXPECT_EQ(heard, said);
    for (size_t at = 0; at < said.size(); at += 7'000) {
      const auto bytes = static_cast<int>(std::min<size_t>(7'000, said.size() - at));
      ASSERT_EQ(SSL_write(theirs.get(), said.data() + at, bytes), bytes);
      ASSERT_EQ(SSL_key_update(theirs.get(), SSL_KEY_UPDATE_NOT_REQUESTED), 1);
    }
    for (heard.clear(); heard.size() < said.size();) {
      char some[3], more[1'108];
      const ssize_t got = ours.Receive({{some, sizeof(some)}, {more, 0}, {more, sizeof(more)}});
      ASSERT_GT(got, 0);
      const auto first = std::min<size_t>(static_cast<size_t>(got), sizeof(some));
      heard.append(some, first).append(more, static_cast<size_t>(got) - first);
    }
    EXPECT_EQ(heard, said);
    close(sockets[0]);
    close(sockets[1]);
  }
}

// A TCP connection within this host.
std::array<int, 2> TcpPair() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  bind(listener, reinterpret_cast<sockaddr*>(&address), bytes);
  listen(listener, 1);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes);
  const int dialer = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(dialer, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  const int acceptor = accept(listener, nullptr, nullptr);
  close(listener);
  for (const int file : {dialer, acceptor}) fcntl(file, F_SETFL, O_NONBLOCK);
  return {dialer, acceptor};
}

bool ShakeBoth(Tls* dialer, Tls* acceptor) {
  bool dials = true, accepts = true;
  for (int i = 0; i < 1000 && (dials || accepts); ++i) {
    if (dials) dials = dialer->Shake() != Tls::Step::kDone;
    if (accepts) accepts = acceptor->Shake() != Tls::Step::kDone;
  }
  return !dials && !accepts;
}

// Each call takes a bounded number of bytes from the socket, for any division into records, and no
// byte is lost.
TEST(Tls, OneCallTakesNoMoreThanItsShareOfSmallRecords) {
  const auto [there, here] = TcpPair();
  const std::string key(Tls::kKeyBytes, 'k');
  Tls dialer(there, true, key), acceptor(here, false, key);
  ASSERT_TRUE(ShakeBoth(&dialer, &acceptor));
  if (dialer.kernel_seals()) GTEST_SKIP() << "the kernel makes the records";
  size_t said = 0, heard = 0, calls = 0;
  std::vector<char> into(size_t{1} << 20);
  const auto hear = [&] {
    const ssize_t got = acceptor.Receive({{into.data(), into.size()}});
    ++calls;
    if (got > 0) heard += static_cast<size_t>(got);
    ASSERT_TRUE(got > 0 || errno == EAGAIN);
    EXPECT_LE(got, ssize_t{60'000}) << "a megabyte of records of one byte";
  };
  char byte = 'x';
  while (said < 150'000) {
    if (dialer.has_output() && dialer.Flush() < 0) {
      hear();
      continue;
    }
    if (dialer.has_output()) continue;
    said += static_cast<size_t>(dialer.Send({{&byte, 1}}));
  }
  while (heard < said) {
    dialer.Flush();
    hear();
  }
  EXPECT_EQ(heard, said);
  for (const int one : {there, here}) close(one);
}

TEST(Tls, ANewKeyForAYoungOneIsRefused) {
  const std::array<int, 2> pair = TcpPair();
  const int there = pair[0], here = pair[1];
  const std::string key(Tls::kKeyBytes, 'k');
  Tls dialer(there, true, key, 1), acceptor(here, false, key);
  ASSERT_TRUE(ShakeBoth(&dialer, &acceptor));
  if (dialer.kernel_seals()) GTEST_SKIP() << "the kernel makes the records";
  char byte = 'x', into[10];
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(dialer.Send({{&byte, 1}}), 1);
    ASSERT_GT(dialer.Flush(), 0);
  }
  const auto hear = [&] {
    for (int i = 0; i < 10; ++i) {
      pollfd file{here, POLLIN, 0};
      poll(&file, 1, 1000);
      acceptor.Receive({{into, sizeof(into)}});
    }
  };
  EXPECT_THROW(hear(), Error);
  for (const int one : {there, here}) close(one);
}

TEST(Tls, IsTheKernelsToSealWhereItHasIt) {
  std::ifstream file("/proc/sys/net/ipv4/tcp_available_ulp");
  const std::string known((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (known.find("tls") == std::string::npos) GTEST_SKIP() << "this kernel has no TLS";
  const std::string key(Tls::kKeyBytes, 'k');
  const auto [there, here] = TcpPair();
  Tls dialer(there, true, key), acceptor(here, false, key);
  ASSERT_TRUE(ShakeBoth(&dialer, &acceptor));
  EXPECT_TRUE(dialer.kernel_seals());
  EXPECT_TRUE(acceptor.kernel_seals());
  const std::string said(100'000, 'x');
  ASSERT_EQ(send(there, said.data(), said.size(), 0), static_cast<ssize_t>(said.size()));
  std::string heard(said.size(), ' ');
  for (size_t got = 0; got < heard.size();) {
    const ssize_t part = acceptor.Receive({{heard.data() + got, heard.size() - got}});
    if (part > 0) got += static_cast<size_t>(part);
    ASSERT_TRUE(part > 0 || errno == EAGAIN);
  }
  EXPECT_EQ(heard, said);
  for (const int one : {there, here}) close(one);
}

// If any bit of the handshakes or of a record is changed, the receiver accepts no wrong value.
TEST(Sockets, AChangedBitOfAConnectionByTlsEndsIt) {
  std::vector<std::byte> value(2000, std::byte{7}), landed(value.size());
  for (size_t at = 0; at < 2400; at += 47) {
    SocketOptions options =
        WithTls(Options("server 0", "secret", {"tcp:127.0.0.1:0"}), UseTls::kAlways);
    options.budgets.handshake_nanoseconds = 200'000'000;
    options.budgets.hello_nanoseconds = 200'000'000;  // for a record that never ends
    Side server(options);
    server.handler.land = {{landed.data(), landed.size(), nullptr}};
    const Relay relay(server.endpoint->address(), at);
    options = WithTls(Options("worker 1", "secret"), UseTls::kAlways);
    options.budgets.handshake_nanoseconds = 200'000'000;
    Side client(options);
    client.endpoint->Dial(1, relay.address());
    Until(&server, &client,
          [&] { return !client.handler.opened.empty() || !client.handler.closed.empty(); });
    if (!client.handler.opened.empty()) client.endpoint->Send(1, PushOf(&value));
    EXPECT_TRUE(Until(&server, &client, [&] {
      return server.handler.received > 0 || !client.handler.closed.empty();
    })) << at;
    EXPECT_EQ(server.handler.received, 0U) << at;
  }
}

TEST(Sockets, AReplayedProofIsNoProof) {
  Side server(Options("server 0", "secret", {"tcp:127.0.0.1:0"}));
  HandshakeOptions honest{"worker 1", "secret", false, kProtocolVersion, "there"};
  Handshake dialer(honest, true),
      acceptor({"server 0", "secret", false, kProtocolVersion, ""}, false);
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
  thief.Say(greeting + proof);  // the proof of another connection
  EXPECT_TRUE(Until(&server, &nobody, [&] { return thief.is_closed(); }));
  EXPECT_TRUE(server.handler.accepted.empty());
  // The acceptor's own proof is not valid as the dialer's either.
  Handshake reflected({"server 0", "secret", false, kProtocolVersion, ""}, false);
  reflected.Receive(greeting.substr(0, sizeof(Greeting)));
  reflected.Receive(greeting.substr(sizeof(Greeting)));
  reflected.TakeOutput();
  reflected.Receive(acceptor.TakeOutput());
  EXPECT_FALSE(reflected.done());
}

// A greeting says who its sender is.  A proof is over both greetings, so it proves the name too.
TEST(Sockets, ANameThatIsChangedOnTheWayIsNoProof) {
  Side server(Options("server 0", "secret", {"tcp:127.0.0.1:0"}));
  const std::string who = "worker 1";
  const Relay relay(server.endpoint->address(), sizeof(Greeting) + who.size() - 1, '1' ^ '0');
  Side client(Options(who, "secret"));
  client.endpoint->Dial(1, relay.address());
  ASSERT_TRUE(Until(&server, &client, [&] { return !client.handler.closed.empty(); }));
  EXPECT_EQ(client.handler.closed[0].second.code(), Code::kUnauthenticated)
      << FirstReason(client.handler);
  EXPECT_TRUE(client.handler.opened.empty());
  EXPECT_TRUE(server.handler.accepted.empty());
}

TEST(Sockets, ManyStrangersLeaveRoomForAPeer) {
  SocketOptions options = Options("server 0", "secret", {"tcp:127.0.0.1:0"});
  options.budgets.strangers_max = 8;
  // So that their number ends them, not their time.
  options.budgets.handshake_nanoseconds = 600'000'000'000;
  Side server(options);
  Side client(Options("worker 1", "secret"));
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 50; ++i) {
    crowd.push_back(std::make_unique<Stranger>(server.endpoint->address()));
    server.endpoint->Poll(&server.handler, 16);
  }
  const auto count_closed = [&] {
    return std::count_if(crowd.begin(), crowd.end(),
                         [](const auto& one) { return one->is_closed(); });
  };
  EXPECT_TRUE(Until(&server, &client, [&] { return count_closed() == 42; }));
  client.endpoint->Dial(1, server.endpoint->address());
  EXPECT_TRUE(Until(&server, &client, [&] { return client.handler.opened.size() == 1; }));
  EXPECT_TRUE(crowd.front()->is_closed() && !crowd.back()->is_closed()) << "the oldest goes";
}

TEST(Sockets, WhatWaitsForAPeerThatDoesNotReadIsBounded) {
  std::vector<std::byte> value(200'000);
  for (const bool has_bodies : {false, true}) {
    SocketOptions options = Options("server 0", "secret", {"tcp:127.0.0.1:0"});
    options.budgets.head_bytes_max = size_t{1} << 20;
    options.budgets.body_bytes_max = size_t{4} << 20;
    options.budgets.unread_nanoseconds = 600'000'000'000;  // so that the bytes end it, not the time
    Side server(options);
    Side client(Options("worker 1", "secret"));
    client.endpoint->Dial(1, server.endpoint->address());
    ASSERT_TRUE(Until(&server, &client, [&] { return server.handler.accepted.size() == 1; }));
    const uint64_t link = server.handler.accepted[0];
    size_t sent = 0;
    for (; server.handler.closed.empty() && sent < size_t{256} << 20; sent += 64) {
      if (has_bodies) {
        server.endpoint->Send(link, PushOf(&value));
        sent += value.size();
      } else {
        FrameBuilder builder;
        builder.Add(MessageOf(Type::kPing));
        server.endpoint->Send(link, builder.Finish(0, 0));
      }
      server.endpoint->Poll(&server.handler, 16);
    }
    ASSERT_EQ(server.handler.closed.size(), 1U) << "after " << sent << " bytes";
    EXPECT_EQ(server.handler.closed[0].second.code(), Code::kResourceExhausted);
    EXPECT_NE(FirstReason(server.handler).find("does not read"), std::string::npos);
  }
}

// ---- no call of an endpoint blocks

// Returns true if f ends within a while.  If it does not, the caller has to end the test program.
bool EndsSoon(const std::function<void()>& f) {
  std::packaged_task<void()> task(f);
  std::future<void> ended = task.get_future();
  std::thread thread(std::move(task));
  const bool is_soon = ended.wait_for(std::chrono::seconds(5)) == std::future_status::ready;
  if (!is_soon) {
    std::fprintf(stderr, "a call blocks\n");
    _exit(1);
  }
  thread.join();
  return is_soon;
}

TEST(Sockets, ADialToAListenerThatAcceptsNobodyDoesNotBlock) {
  const std::string name = "tkv-full-" + RandomHex(8);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(listener, at, size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  std::vector<int> queued;
  do queued.push_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  while (connect(queued.back(), at, size) == 0);
  ASSERT_EQ(errno, EAGAIN) << "the queue is full";
  Side client(Options("worker 1", ""));
  EXPECT_TRUE(EndsSoon([&] { client.endpoint->Dial(1, Format("unix:{}/{}", HostId(), name)); }));
  client.endpoint->Poll(&client.handler, 16);
  ASSERT_EQ(client.handler.closed.size(), 1U) << "it cannot be reached";
  EXPECT_EQ(client.handler.closed[0].second.code(), Code::kUnavailable);
  for (const int file : queued) close(file);
  close(listener);
}

TEST(Sockets, ALookUpThatNeverEndsHoldsNobodyUp) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::atomic<int> asked{0};
  SocketOptions options = Options("worker 1", "secret");
  options.look_up = [released, &asked](const std::string&) {
    ++asked;
    released.wait();
    return LookedUp{{}, "no such name"};
  };
  Side server(Options("server 0", "secret", {"tcp:127.0.0.1:0"}));
  auto client = std::make_unique<Side>(options);
  EXPECT_TRUE(EndsSoon([&] {
    for (uint64_t link = 1; link <= 20; ++link) client->endpoint->Dial(link, "tcp:slow.name:80");
    client->endpoint->Dial(21, server.endpoint->address());
  }));
  EXPECT_TRUE(Until(&server, client.get(),
                    [&] { return client->handler.opened.size() == 1 && asked > 0; }));
  EXPECT_EQ(asked, 1) << "one thread for one name";
  EXPECT_TRUE(EndsSoon([&] { client.reset(); }));
  release.set_value();
}

TEST(Sockets, APeerThatReadsNothingIsToldOfMoreAndMoreSeldom) {
  std::vector<std::string> told;
  SocketOptions options = Options("server 0", "secret", {"tcp:127.0.0.1:0"});
  options.budgets.stand_nanoseconds = 1'000'000;
  options.stands = [&told](const std::string& text) { told.push_back(text); };
  Side server(options);
  Side client(Options("worker 1", "secret"));
  client.endpoint->Dial(1, server.endpoint->address());
  ASSERT_TRUE(Until(&server, &client, [&] { return server.handler.accepted.size() == 1; }));
  std::vector<std::byte> value(size_t{64} << 20);  // more than sockets hold
  server.endpoint->Send(server.handler.accepted[0], PushOf(&value));
  EXPECT_TRUE(Until(&server, &server, [&] { return !told.empty(); }));
  EXPECT_NE(told[0].find(" s for worker 1 to read: standing="), std::string::npos) << told[0];
  EXPECT_NE(told[0].find(" waits_for=\"worker 1\" peer=127.0.0.1 queued_bytes="), std::string::npos)
      << told[0];
  EXPECT_TRUE(Until(&server, &server, [&] { return told.size() == 3; }));
}

LookUp Names(std::vector<std::string> addresses) {
  return [addresses](const std::string&) { return LookedUp{addresses, ""}; };
}

TEST(Sockets, EveryAddressOfANameIsDialed) {
  Side server(Options("server 0", "secret", {"tcp:127.0.0.1:0"}));
  const uint16_t port = ParseAddresses(server.endpoint->address()).front().port;
  SocketOptions options = Options("worker 1", "secret");
  options.look_up = Names({"127.0.0.2", "::1", "127.0.0.1"});
  Side client(options);
  client.endpoint->Dial(1, Format("tcp:a.name:{}", port));
  EXPECT_TRUE(Until(&server, &client, [&] { return client.handler.opened.size() == 1; }))
      << FirstReason(client.handler);
}

TEST(Sockets, AnAddressThatGivesNoSignDoesNotKeepFromTheNext) {
  Side server(Options("server 0", "secret", {"tcp:127.0.0.1:0"}));
  const uint16_t port = ParseAddresses(server.endpoint->address()).front().port;
  // A listener with a full queue drops connection requests, so connect keeps retrying.
  asio::io_context context;
  asio::ip::tcp::acceptor silent(context);
  silent.open(asio::ip::tcp::v4());
  silent.bind({asio::ip::make_address("127.0.0.2"), port});
  silent.listen(0);
  std::vector<asio::ip::tcp::socket> crowd;
  for (int i = 0; i < 8; ++i) {
    crowd.emplace_back(context, asio::ip::tcp::v4());
    crowd.back().non_blocking(true);
    connect(crowd.back().native_handle(), silent.local_endpoint().data(),
            static_cast<socklen_t>(silent.local_endpoint().size()));
  }
  SocketOptions options = Options("worker 1", "secret");
  options.look_up = Names({"127.0.0.2", "127.0.0.1"});
  Side client(options);
  client.endpoint->Dial(1, Format("tcp:a.name:{}", port));
  EXPECT_TRUE(Until(
      &server, &client,
      [&] { return client.handler.opened.size() + client.handler.closed.size() == 1; }, 8000));
  EXPECT_EQ(client.handler.opened.size(), 1U) << FirstReason(client.handler);
}

TEST(Sockets, OfANameTheFirstAddressThatCanBeHadIsListenedAt) {
  SocketOptions options = Options("server 0", "secret", {"tcp:a.name:0"});
  options.look_up = Names({"192.0.2.1", "127.0.0.1"});  // no machine has the first (RFC 5737)
  Side server(options);
  EXPECT_EQ(ParseAddresses(server.endpoint->address()).front().host, "127.0.0.1");
  options.look_up = [](const std::string&) { return LookedUp{{}, "no such name"}; };
  try {
    Side nowhere(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no such name"), std::string::npos) << error.what();
  }
}

// Makes a system call fail with an error from now on.  Call it in a child that is about to end.
bool MakeFail(int call, int error) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{4, code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Returns the number of failed questions behind which a later one is not answered, where no thread
// can be started.
int UnansweredWithoutThreads() {
  if (!MakeFail(SYS_clone, EAGAIN) || !MakeFail(SYS_clone3, EAGAIN)) return 100;
  int unanswered = 0;
  bool has_lacked = true;
  for (int n = 0; has_lacked && n < 100; ++n) {
    Resolver resolver([](const std::string&) { return LookedUp{{"127.0.0.1"}, ""}; }, [] {});
    const std::string host = "a-host-with-a-long-name.example.org";
    has_lacked = test::WithMemoryFor(n, [&] { resolver.Ask(1, host); }).ran_out;
    resolver.TakeAnswers();
    resolver.Ask(2, host);
    const auto answers = resolver.TakeAnswers();
    const bool is_answered =
        std::ranges::any_of(answers, [](const auto& a) { return a.asker == 2; });
    unanswered += is_answered ? 0 : 1;
  }
  return has_lacked ? 101 : unanswered;
}

TEST(Resolver, AnswersAfterAQuestionForWhichThereWasNeitherThreadNorMemory) {
  const pid_t child = fork();
  if (child == 0) _exit(UnansweredWithoutThreads());
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Returns how often an endpoint wakes in half a second while it cannot accept a waiting connection.
int WakesWhileAcceptFails(int error) {
  Side server(Options("server 0", "", {"unix"}));
  Side client(Options("worker 1", ""));
  if (!MakeFail(SYS_accept, error) || !MakeFail(SYS_accept4, error)) return 250;
  client.endpoint->Dial(1, server.endpoint->address());
  int wakes = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  while (std::chrono::steady_clock::now() < end && wakes < 200) {
    server.endpoint->Wait(100'000'000);
    server.endpoint->Poll(&server.handler, 16);
    ++wakes;
  }
  return wakes;
}

TEST(Sockets, WhereTheSystemCannotAcceptTheEndpointSleeps) {
  for (const int error : {EMFILE, ENFILE, ENOMEM, ENOBUFS, EPERM}) {
    const pid_t child = fork();
    if (child == 0) _exit(WakesWhileAcceptFails(error));
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_LT(WEXITSTATUS(status), 30) << std::strerror(error);
  }
}

// Returns true if the endpoint reports the loss of a connection to which this system cannot write.
int IsToldWhereWritesFail(const char* where, int error) {
  Side server(Options("server 0", "secret", {where}));
  Side client(Options("worker 1", "secret"));
  client.endpoint->Dial(1, server.endpoint->address());
  if (!Until(&server, &client, [&] { return client.handler.opened.size() == 1; })) return 2;
  if (!MakeFail(SYS_sendmsg, error)) return 3;
  std::vector<std::byte> value(1000);
  client.endpoint->Send(1, PushOf(&value));
  return Until(&server, &client, [&] { return client.handler.closed.size() == 1; }, 2000) ? 0 : 1;
}

TEST(Sockets, AConnectionThatTheSystemCannotWriteToIsTold) {
  for (const char* where : {"unix", "tcp:127.0.0.1:0"}) {
    for (const int error : {ENOBUFS, ENOMEM, EPERM}) {
      const pid_t child = fork();
      if (child == 0) _exit(IsToldWhereWritesFail(where, error));
      int status = 0;
      waitpid(child, &status, 0);
      ASSERT_TRUE(WIFEXITED(status));
      EXPECT_EQ(WEXITSTATUS(status), 0) << where << ": " << std::strerror(error);
    }
  }
}

constexpr size_t kLent = size_t{1} << 20;

// A server that lends memory to its client, and has just sent a value that the client has not read.
struct Lender {
  Lender() {
    EXPECT_TRUE(Until(&server, &client, [&] { return !client.handler.opened.empty(); }));
    client.handler.land = {{landed.data(), landed.size(), nullptr}};
    Send(std::byte{0});  // the client learns of the memory
    EXPECT_TRUE(Until(&server, &client, [&] { return client.handler.received == 1; }));
    Send(std::byte{1});
  }
  static SocketOptions OptionsWith(std::shared_ptr<Arena> arena) {
    SocketOptions options = Options("server 0", "", {"unix"});
    options.arena = std::move(arena);
    return options;
  }
  void Send(std::byte value) {
    const Block block = arena->Allocate(kLent);
    std::fill_n(block.data, kLent, value);
    Message push;
    push.type = Type::kPush;
    push.body = block.bytes();
    FrameBuilder builder;
    builder.Add(std::move(push));
    server.endpoint->Send(101, builder.Finish(0, 0));
  }
  // Returns true if the client reads the value that was sent, although the server has lost it.
  bool KeepsTheValue() {
    for (int i = 0; i < 300; ++i) {
      server.endpoint->Poll(&server.handler, 16);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (server.handler.closed.size() != 1) return false;
    for (int i = 0; i < 3; ++i) std::fill_n(arena->Allocate(kLent).data, kLent, std::byte{2});
    Until(&server, &client, [&] { return client.handler.received == 2; });
    return client.handler.received == 2 && landed[5] == std::byte{1};
  }

  std::string why;
  std::shared_ptr<Arena> arena = Arena::Open(&why);
  std::vector<std::byte> landed = std::vector<std::byte>(kLent);
  Side server{OptionsWith(arena)};
  Side client = [this] {
    Side side(Options("worker 1", ""));
    side.endpoint->Dial(1, server.endpoint->address());
    return side;
  }();
};

TEST(Sockets, WhatAStarvedConnectionHasLentIsNotUsedAgain) {
  Lender lender;
  FrameBuilder builder;
  builder.Add(MessageOf(Type::kPing));
  lender.client.endpoint->Send(1, builder.Finish(0, 0));
  lender.server.handler.closed.reserve(10);
  for (int i = 0; i < 1000 && lender.server.handler.closed.empty(); ++i) {
    test::allocations_left = 0;
    lender.server.endpoint->Poll(&lender.server.handler, 16);
    test::allocations_left = -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(lender.KeepsTheValue());
}

int KeepsTheValueWhereWritesFail() {
  Lender lender;
  if (!MakeFail(SYS_sendmsg, ENOBUFS)) return 2;
  lender.Send(std::byte{3});
  return lender.KeepsTheValue() ? 0 : 1;
}

TEST(Sockets, WhatIsLentIsNotUsedAgainWhereWritesFail) {
  const pid_t child = fork();
  if (child == 0) _exit(KeepsTheValueWhereWritesFail());
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// The client takes a value each 0.4 s; the server's queue is full all the time.
TEST(Sockets, APeerThatGivesLentMemoryBackReads) {
  SocketOptions options = Lender::OptionsWith(nullptr);
  std::string why;
  options.arena = Arena::Open(&why);
  options.budgets.unread_nanoseconds = 1'000'000'000;
  Side server(options);
  options = Options("worker 1", "");
  options.budgets.turn_bytes_max = 1;
  Side client(options);
  client.endpoint->Dial(1, server.endpoint->address());
  ASSERT_TRUE(Until(&server, &client, [&] { return !client.handler.opened.empty(); }));
  std::vector<std::byte> value(kLent), large(3 * kLent);
  client.handler.land = {{nullptr, value.size(), nullptr}};
  server.endpoint->Send(101, PushOf(&value));  // the client learns of the memory
  ASSERT_TRUE(Until(&server, &client, [&] { return client.handler.received == 1; }));
  for (int i = 0; i < 6; ++i) server.endpoint->Send(101, PushOf(&value));
  server.endpoint->Send(101, PushOf(&large));
  for (size_t received = 2; received <= 7; ++received) {
    for (int i = 0; i < 400; ++i) {
      server.endpoint->Poll(&server.handler, 16);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    while (client.handler.received < received) client.endpoint->Poll(&client.handler, 1);
    ASSERT_TRUE(server.handler.closed.empty()) << FirstReason(server.handler);
  }
}

size_t OpenFiles() {
  const auto files = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

TEST(Sockets, AFileThatArrivesWhenMemoryIsLackingIsClosed) {
  const size_t before = OpenFiles();
  bool has_lacked = true;
  for (int n = 0; has_lacked && n < 100; ++n) {
    Lender lender;
    lender.client.handler.land = {{nullptr, kLent, nullptr}};
    Side other(Options("worker 2", ""));
    other.handler.land = lender.client.handler.land;
    other.handler.closed.reserve(10);
    other.endpoint->Dial(1, lender.server.endpoint->address());
    ASSERT_TRUE(Until(&lender.server, &other, [&] { return other.handler.opened.size() == 1; }));
    std::vector<std::byte> value(kLent);
    lender.server.endpoint->Send(102, PushOf(&value));
    int left = n;
    for (int i = 0; i < 50; ++i) {
      test::allocations_left = left;
      other.endpoint->Poll(&other.handler, 16);
      left = std::exchange(test::allocations_left, -1);
      lender.server.endpoint->Poll(&lender.server.handler, 16);
    }
    has_lacked = left < 0;
  }
  EXPECT_FALSE(has_lacked);
  EXPECT_EQ(OpenFiles(), before);
}

TEST(Sockets, ALinkIsLostOnceWhereMemoryIsLacking) {
  for (const char* where : {"unix", "tcp:127.0.0.1:0"}) {
    bool has_lacked = true;
    for (int n = 0; has_lacked && n < 60; ++n) {
      Side server(Options("server 0", "secret", {where}));
      auto client = std::make_unique<Side>(Options("worker 1", "secret"));
      client->endpoint->Dial(1, server.endpoint->address());
      ASSERT_TRUE(Until(&server, client.get(), [&] { return !client->handler.opened.empty(); }));
      ASSERT_TRUE(Until(&server, client.get(), [&] { return !server.handler.accepted.empty(); }));
      client.reset();
      server.handler.closed.reserve(10);
      int left = n;
      for (int i = 0; i < 200; ++i) {
        test::allocations_left = left;
        server.endpoint->Poll(&server.handler, 16);
        left = std::exchange(test::allocations_left, -1);
        server.endpoint->Wait(1'000'000);
      }
      has_lacked = left < 0;
      EXPECT_EQ(server.handler.closed.size(), 1U) << where << ", allocation " << n;
    }
  }
}

TEST(Sockets, ALinkThatTheUserHasClosedIsNotReportedAsLost) {
  SocketOptions options = Options("server 0", "secret", {"tcp:127.0.0.1:0"});
  options.budgets.body_bytes_max = 1000;
  Side server(options);
  Side client(Options("worker 1", "secret"));
  client.endpoint->Dial(1, server.endpoint->address());
  ASSERT_TRUE(Until(&server, &client, [&] { return !server.handler.accepted.empty(); }));
  ASSERT_TRUE(Until(&server, &client, [&] { return !client.handler.opened.empty(); }));
  std::vector<std::byte> value(size_t{30} << 20);
  for (int i = 0; i < 2; ++i) server.endpoint->Send(101, PushOf(&value));  // too much: it is lost
  server.endpoint->Close(101);
  server.endpoint->Poll(&server.handler, 16);
  EXPECT_TRUE(server.handler.closed.empty());
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

// A process that serves at a Unix socket until it is killed, and its address.
std::pair<pid_t, std::string> ServingChild() {
  int pipes[2];
  if (pipe(pipes) != 0) return {-1, ""};
  const pid_t child = fork();
  if (child == 0) {
    Side server(Options("server 0", "", {"unix"}));
    const std::string address = server.endpoint->address();
    std::ignore = write(pipes[1], address.data(), address.size());
    close(pipes[1]);
    for (;;) {
      server.endpoint->Wait(100'000'000);
      server.endpoint->Poll(&server.handler, 16);
    }
  }
  close(pipes[1]);
  std::array<char, 256> address{};
  const ssize_t got = read(pipes[0], address.data(), address.size());
  close(pipes[0]);
  return {child, std::string(address.data(), static_cast<size_t>(std::max<ssize_t>(got, 0)))};
}

TEST(Sockets, AProcessThatEndsAfterItsConnectionIsKnownToHaveWhenItIsDialedAgain) {
  const auto [child, address] = ServingChild();
  ASSERT_GT(child, 0);
  Side client(Options("worker 1", ""));
  Side nobody(Options("nobody", ""));
  client.endpoint->Dial(1, address);
  ASSERT_TRUE(Until(&client, &nobody, [&] { return client.handler.opened.size() == 1; }));
  kill(child, SIGSTOP);
  client.endpoint->Close(1);  // because it is silent
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  for (const Code expected : {Code::kAborted, Code::kUnavailable}) {  // the end is reported once
    client.handler.closed.clear();
    client.endpoint->Dial(2, address);
    ASSERT_TRUE(Until(&client, &nobody, [&] { return client.handler.closed.size() == 1; }));
    EXPECT_EQ(client.handler.closed[0].second.code(), expected) << FirstReason(client.handler);
  }
}

// The servers of a long job that were started again and again, each time at another address.
TEST(ProcessWatch, ForgetsProcessesThatHaveEnded) {
  ProcessWatch watch;
  watch.Keep("of this process", ProcessFile::Open(getpid()));
  for (size_t i = 0; i < 2 * ProcessWatch::kKeptMax; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    const ProcessFile process = ProcessFile::Open(child);
    waitpid(child, nullptr, 0);
    const std::string address = Format("unix:{}", i);
    watch.Keep(address, process);
  }
  EXPECT_LE(watch.size(), ProcessWatch::kKeptMax);
  EXPECT_TRUE(watch.HasEnded(Format("unix:{}", 2 * ProcessWatch::kKeptMax - 1)));
  EXPECT_FALSE(watch.HasEnded("of this process"));
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
