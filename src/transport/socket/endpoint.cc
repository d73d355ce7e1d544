#include "transport/socket/endpoint.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>

#include "base/format.h"
#include "transport/socket/connection.h"

namespace tkv {
namespace {

namespace asio = boost::asio;
using asio::generic::stream_protocol;
using Outcome = Connection::Outcome;
using Stage = Connection::Stage;

constexpr int64_t kDialNanoseconds = 5'000'000'000;
constexpr int64_t kLingerNanoseconds = 1'000'000'000;
constexpr int64_t kCheckNanoseconds = 50'000'000;
constexpr int64_t kExitNanoseconds = 50'000'000;  // from the end of its files to that of a process
constexpr int64_t kAcceptPauseNanoseconds = 100'000'000;  // where the process has no more files
constexpr size_t kReadBytesPerTurn = size_t{8} << 20;
constexpr size_t kScratchBytes = size_t{256} << 10;

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A process that this one starts does not keep the connection open when this one is gone.
void KeepFromChildren(int file) { fcntl(file, F_SETFD, FD_CLOEXEC); }

// What the reactor has seen, told to whoever polls.
struct Readiness {
  enum class Kind : uint8_t { kAccept, kRead, kWrite, kDialed, kResolved };
  Kind kind;
  uint64_t number;  // of the connection or the acceptor
  boost::system::error_code error;
  asio::ip::tcp::resolver::results_type resolved;
};

struct ReadyList {
  std::mutex mutex;
  std::deque<Readiness> items;
  bool woken = false;
  void Add(Readiness item) {
    std::lock_guard lock(mutex);
    items.push_back(std::move(item));
  }
};

class Sockets final : public SocketEndpoint {
 public:
  explicit Sockets(SocketOptions options)
      : options_(std::move(options)),
        work_(asio::make_work_guard(context_)),
        resolver_(context_),
        host_(HostId()),
        scratch_(kScratchBytes) {
    for (const std::string& where : options_.listen) Listen(where);
  }

  const std::string& address() const override { return address_; }

  void Dial(uint64_t link, const std::string& address) override {
    auto connection = Add(link);
    connection->is_dialer = true;
    connection->deadline = Now() + kDialNanoseconds;
    has_deadlines_ = true;
    connection->peer = address;
    try {
      for (const SocketAddress& one : ParseAddresses(address)) {
        const bool is_near =
            one.kind == SocketAddress::Kind::kTcp || (options_.use_unix && one.host == host_);
        if (is_near) connection->alternatives.push_back(one);
      }
      DialNext(*connection, Fail(Code::kUnavailable, "{} {}", address,
                                 options_.use_unix ? "is on another host" : "is no TCP address"));
    } catch (const Error& error) {
      Lose(*connection, error);
    }
  }

  void Send(uint64_t link, Frame frame) override {
    const auto found = links_.find(link);
    if (found == links_.end() || found->second->stage != Stage::kOpen) return;
    Connection& connection = *found->second;
    const bool is_first = !connection.has_output();
    connection.Queue(std::move(frame));
    if (is_first) WriteOn(connection);
  }

  void Close(uint64_t link) override {
    const auto found = links_.find(link);
    if (found == links_.end()) return;
    const std::shared_ptr<Connection> connection = found->second;
    links_.erase(found);
    const bool was_open = connection->stage == Stage::kOpen;
    connection->link = 0;
    if (!was_open || !connection->DropBodies()) return Drop(*connection);
    connection->stage = Stage::kLingering;
    connection->deadline = Now() + kLingerNanoseconds;
    has_deadlines_ = true;
    Linger(*connection);
  }

  void Release(const void* data, size_t bytes) override {
    for (auto& [number, connection] : connections_) connection->Release(data, bytes);
  }

  size_t Poll(LinkHandler* handler, size_t events_max) override {
    context_.poll();
    std::deque<Readiness> ready;
    {
      std::lock_guard lock(ready_->mutex);
      ready.swap(ready_->items);
      ready_->woken = false;
    }
    size_t count = 0;
    while (!ready.empty() && count < events_max) {
      const Readiness item = std::move(ready.front());
      ready.pop_front();
      Handle(item, handler);
      ++count;
    }
    if (!ready.empty()) {
      std::lock_guard lock(ready_->mutex);
      ready_->items.insert(ready_->items.begin(), std::make_move_iterator(ready.begin()),
                           std::make_move_iterator(ready.end()));
    }
    CheckDeadlines();
    while (!failed_.empty()) {
      const auto [link, error] = std::move(failed_.front());
      failed_.pop_front();
      handler->Closed(link, error);
      ++count;
    }
    return count;
  }

  bool Wait(int64_t nanoseconds) override {
    {
      std::lock_guard lock(ready_->mutex);
      if (!ready_->items.empty() || ready_->woken) return true;
    }
    if (has_deadlines_) nanoseconds = std::min(nanoseconds, kCheckNanoseconds);
    return context_.run_one_for(std::chrono::nanoseconds(nanoseconds)) > 0;
  }

  void Wake() override {
    {
      std::lock_guard lock(ready_->mutex);
      if (ready_->woken) return;
      ready_->woken = true;
    }
    asio::post(context_, [] {});
  }

 private:
  struct Acceptor {
    asio::basic_socket_acceptor<stream_protocol> socket;
    bool is_unix;
    int64_t paused_until = 0;
  };

  // ---- listening

  void Listen(const std::string& where) {
    try {
      if (where == "unix" || where.starts_with("unix:")) {
        const std::string name = where == "unix" ? "tkv-" + RandomHex(12) : where.substr(5);
        const asio::local::stream_protocol::endpoint endpoint(std::string(1, '\0') + name);
        Open(endpoint, true);
        Publish(Format("unix:{}/{}", host_, name));
        return;
      }
      const SocketAddress wanted = ParseAddresses(where).front();
      if (options_.token.empty() && !options_.insecure_network) {
        throw Fail(Code::kInvalidArgument, "listen at {}: TCP needs a token; {}", where,
                   kHowToMakeAToken);
      }
      asio::ip::tcp::resolver resolver(context_);
      const asio::ip::tcp::endpoint endpoint =
          resolver.resolve(wanted.host, std::to_string(wanted.port))->endpoint();
      const uint16_t port = Open(endpoint, false);
      Publish(ToString({SocketAddress::Kind::kTcp, endpoint.address().to_string(), "", port}));
    } catch (const boost::system::system_error& error) {
      const bool is_taken = error.code() == asio::error::address_in_use;
      throw Fail(is_taken ? Code::kAlreadyExists : Code::kUnavailable, "listen at {}: {}", where,
                 error.code().message());
    }
  }

  template <typename Endpoint>
  uint16_t Open(const Endpoint& endpoint, bool is_unix) {
    acceptors_.push_back({asio::basic_socket_acceptor<stream_protocol>(context_), is_unix});
    auto& socket = acceptors_.back().socket;
    socket.open(stream_protocol(endpoint.protocol()));
    KeepFromChildren(socket.native_handle());
    if (!is_unix) socket.set_option(asio::socket_base::reuse_address(true));
    socket.bind(endpoint);
    socket.listen(1024);
    socket.non_blocking(true);
    AwaitAccept(acceptors_.size() - 1);
    asio::ip::tcp::endpoint bound;
    if (!is_unix) {
      const auto local = socket.local_endpoint();
      bound.resize(local.size());
      std::memcpy(bound.data(), local.data(), local.size());
    }
    return is_unix ? 0 : bound.port();
  }

  void Publish(const std::string& address) {
    if (!address_.empty()) address_ += ',';
    address_ += address;
  }

  void AwaitAccept(size_t index) {
    acceptors_[index].socket.async_wait(asio::socket_base::wait_read,
                                        [ready = ready_, index](const auto& error) {
                                          ready->Add({Readiness::Kind::kAccept, index, error, {}});
                                        });
  }

  void Accept(size_t index) {
    Acceptor& acceptor = acceptors_[index];
    for (int i = 0; i < 64; ++i) {
      auto connection = std::make_shared<Connection>(&context_);
      boost::system::error_code error;
      std::ignore = acceptor.socket.accept(connection->socket, error);
      if (error == asio::error::would_block) break;
      if (error == asio::error::no_descriptors || error == asio::error::no_memory) {
        acceptor.paused_until = Now() + kAcceptPauseNanoseconds;
        has_deadlines_ = true;
        return;
      }
      if (error) continue;
      if (strangers_ >= options_.strangers_max) DropOldestStranger();
      connection->number = ++last_number_;
      connections_[connection->number] = connection;
      ++strangers_;
      connection->peer = acceptor.is_unix ? "this host" : PeerOf(*connection);
      if (acceptor.is_unix && !IsOfThisUser(*connection)) {
        Drop(*connection);
        continue;
      }
      Shake(*connection, acceptor.is_unix);
      AwaitRead(*connection);
    }
    AwaitAccept(index);
  }

  static std::string PeerOf(const Connection& connection) {
    boost::system::error_code error;
    const auto remote = connection.socket.remote_endpoint(error);
    if (error) return "nobody";
    asio::ip::tcp::endpoint endpoint;
    endpoint.resize(remote.size());
    std::memcpy(endpoint.data(), remote.data(), remote.size());
    return endpoint.address().to_string();
  }

  static bool IsOfThisUser(Connection& connection) {
    ucred credentials{};
    socklen_t size = sizeof(credentials);
    if (getsockopt(connection.socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &credentials,
                   &size) != 0) {
      return false;
    }
    if (connection.process >= 0) close(std::exchange(connection.process, -1));
    if (credentials.pid > 0) {  // 0: of another container
      connection.process = static_cast<int>(syscall(SYS_pidfd_open, credentials.pid, 0));
    }
    return credentials.uid == geteuid();
  }

  static bool HasExited(const Connection& connection) {
    pollfd process{connection.process, POLLIN, 0};
    return connection.process >= 0 && poll(&process, 1, 0) == 1;
  }

  // The connection is gone.  Where the peer is a process of this host it is worth a moment to know
  // whether it is gone as well.
  void End(Connection& connection) {
    connection.has_ended = true;
    if (HasExited(connection)) {
      return Lose(connection, Fail(Code::kAborted, "{}: its process has ended", connection.peer));
    }
    if (connection.process < 0 || connection.stage == Stage::kEnding) {
      return Lose(connection,
                  Fail(Code::kUnavailable, "{}: the connection is lost", connection.peer));
    }
    connection.stage = Stage::kEnding;
    connection.deadline = Now() + kExitNanoseconds;
    has_deadlines_ = true;
  }

  void DropOldestStranger() {
    for (auto& [number, connection] : connections_) {
      if (connection->stage != Stage::kHandshake || connection->is_dialer) continue;
      return Drop(*connection);
    }
  }

  // ---- dialing

  std::shared_ptr<Connection> Add(uint64_t link) {
    auto connection = std::make_shared<Connection>(&context_);
    connection->number = ++last_number_;
    connection->link = link;
    connections_[connection->number] = connection;
    links_[link] = connection;
    return connection;
  }

  void DialNext(Connection& connection, const Error& why) {
    if (connection.alternatives.empty()) return Lose(connection, why);
    const SocketAddress address = connection.alternatives.front();
    connection.alternatives.pop_front();
    connection.peer = ToString(address);
    const bool is_first = !std::exchange(connection.has_tried, true);
    boost::system::error_code error;
    if (connection.socket.is_open()) std::ignore = connection.socket.close(error);
    if (address.kind == SocketAddress::Kind::kUnix) {
      connection.peer = "this host";
      const asio::local::stream_protocol::endpoint endpoint(std::string(1, '\0') + address.name);
      std::ignore = connection.socket.connect(endpoint, error);
      return Dialed(connection, error, true);
    }
    if (options_.token.empty() && !options_.insecure_network) {
      // Where a Unix socket is not there yet it may be soon; else no more trying helps.
      const bool may_come = !is_first;
      return Lose(connection, Fail(may_come ? Code::kUnavailable : Code::kUnauthenticated,
                                   "{}{}{}: TCP needs a token; {}", may_come ? why.what() : "",
                                   may_come ? "; " : "", connection.peer, kHowToMakeAToken));
    }
    const asio::ip::address numeric = asio::ip::make_address(address.host, error);
    if (!error) return Connect(connection, {numeric, address.port});
    resolver_.async_resolve(
        address.host, std::to_string(address.port),
        [ready = ready_, number = connection.number](const auto& failed, auto results) {
          ready->Add({Readiness::Kind::kResolved, number, failed, std::move(results)});
        });
  }

  void Connect(Connection& connection, const asio::ip::tcp::endpoint& endpoint) {
    connection.socket.async_connect(
        endpoint, [ready = ready_, number = connection.number](const auto& error) {
          ready->Add({Readiness::Kind::kDialed, number, error, {}});
        });
  }

  void Dialed(Connection& connection, const boost::system::error_code& error, bool is_unix) {
    if (error) {
      return DialNext(connection,
                      Fail(Code::kUnavailable, "{}: {}", connection.peer, error.message()));
    }
    if (is_unix && !IsOfThisUser(connection)) {
      return DialNext(connection,
                      Fail(Code::kUnauthenticated, "{}: the process there is of another user",
                           connection.peer));
    }
    Shake(connection, is_unix);
    connection.QueueRaw(connection.handshake->TakeOutput());
    WriteOn(connection);
    AwaitRead(connection);
  }

  // ---- handshake

  void Shake(Connection& connection, bool is_unix) {
    if (!is_unix) {
      const int on = 1;
      setsockopt(connection.socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    KeepFromChildren(connection.socket.native_handle());
    connection.is_unix = is_unix;
    connection.adds_body_checks = options_.check_bodies && !is_unix;
    connection.stage = Stage::kHandshake;
    connection.deadline = Now() + options_.handshake_nanoseconds;
    has_deadlines_ = true;
    connection.handshake.emplace(
        HandshakeOptions{options_.who, options_.token, is_unix || options_.insecure_network,
                         options_.version, connection.peer},
        connection.is_dialer);
  }

  void OnHandshake(Connection& connection, LinkHandler* handler) {
    const Outcome outcome = connection.ReadHandshake();
    if (connection.has_output()) WriteOn(connection);
    if (connection.handshake->failed()) return Lose(connection, *connection.handshake->failed());
    if (outcome == Outcome::kOver) {
      // A dialer whose proof is wrong is not told more than this.
      return Lose(connection, Fail(Code::kUnavailable,
                                   "{} has closed the connection before it was "
                                   "open",
                                   connection.peer));
    }
    if (!connection.handshake->done()) return AwaitRead(connection);
    connection.stage = Stage::kOpen;
    connection.deadline = 0;
    if (connection.is_unix && options_.share_memory) {
      connection.lending.emplace(options_.arena, options_.warn);
    }
    if (connection.is_dialer) {
      handler->Opened(connection.link);
    } else {
      --strangers_;
      connection.link = handler->Accepted();
      links_[connection.link] = connections_.at(connection.number);
    }
    // What came behind the handshake is read at once.
    ready_->Add({Readiness::Kind::kRead, connection.number, {}, {}});
  }

  // ---- reading and writing

  void AwaitRead(Connection& connection) {
    if (connection.is_reading) return;
    connection.is_reading = true;
    connection.socket.async_wait(asio::socket_base::wait_read,
                                 [ready = ready_, number = connection.number](const auto& e) {
                                   ready->Add({Readiness::Kind::kRead, number, e, {}});
                                 });
  }

  void AwaitWrite(Connection& connection) {
    if (connection.is_writing) return;
    connection.is_writing = true;
    connection.socket.async_wait(asio::socket_base::wait_write,
                                 [ready = ready_, number = connection.number](const auto& e) {
                                   ready->Add({Readiness::Kind::kWrite, number, e, {}});
                                 });
  }

  // An error shows when the connection is read, where its end can be told.
  void WriteOn(Connection& connection) {
    switch (connection.Write()) {
      case Outcome::kBlocked:
      case Outcome::kPaused:
        return AwaitWrite(connection);
      case Outcome::kMore:
      case Outcome::kOver:
      case Outcome::kWaiting:
        return;
    }
  }

  void ReadOn(Connection& connection, LinkHandler* handler) {
    Outcome outcome = Outcome::kOver;
    try {
      outcome = connection.Read(handler, &scratch_, kReadBytesPerTurn);
    } catch (const Error& error) {
      // Not one of the codes that say who is at fault: the peer may be dialed again.
      const Error reason = Fail(Code::kInvalidArgument, "{}: {}", connection.peer, error.what());
      return Lose(connection, reason);
    }
    if (connection.stage != Stage::kOpen) return;
    if (outcome == Outcome::kOver) return End(connection);
    // Shared memory has been given back, or is to be.
    if (connection.lending && connection.has_output()) WriteOn(connection);
    if (outcome == Outcome::kBlocked) return AwaitRead(connection);
    ready_->Add({Readiness::Kind::kRead, connection.number, {}, {}});
  }

  // After a close: what is left to say is said, then the peer's own close is awaited.
  void Linger(Connection& connection) {
    if (connection.Write() == Outcome::kBlocked) return AwaitWrite(connection);
    shutdown(connection.socket.native_handle(), SHUT_WR);
    if (!IsClosedByPeer(connection)) return AwaitRead(connection);
    Drop(connection);
  }

  // Throws away what it still says.
  bool IsClosedByPeer(Connection& connection) {
    for (;;) {
      const ssize_t got =
          recv(connection.socket.native_handle(), scratch_.data(), scratch_.size(), MSG_DONTWAIT);
      if (got > 0) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
      return connection.has_ended = true;
    }
  }

  // ---- the end of a connection

  void Drop(Connection& connection) {
    if (connection.stage == Stage::kHandshake && !connection.is_dialer) --strangers_;
    if (connection.link != 0) links_.erase(connection.link);
    boost::system::error_code ignored;
    if (connection.has_lent() && !connection.has_ended) {
      // The peer may be reading what was lent, however long it has been silent.
      shutdown(connection.socket.native_handle(), SHUT_WR);
      std::ignore = connection.socket.cancel(ignored);
      unclosed_.push_back(connections_.at(connection.number));
      has_deadlines_ = true;
    } else {
      std::ignore = connection.socket.close(ignored);
    }
    connection.stage = Stage::kLingering;
    connections_.erase(connection.number);  // the last: it may be the last reference
  }

  void Lose(Connection& connection, const Error& reason) {
    if (connection.link != 0) failed_.emplace_back(connection.link, reason);
    Drop(connection);
  }

  void CheckDeadlines() {
    const int64_t now = Now();
    if (!has_deadlines_ || now < next_check_) return;
    next_check_ = now + kCheckNanoseconds;
    std::vector<std::shared_ptr<Connection>> late;
    for (const auto& [number, connection] : connections_) {
      if (connection->deadline != 0 && connection->deadline <= now) late.push_back(connection);
    }
    for (const auto& connection : late) {
      if (connection->stage == Stage::kEnding) {
        End(*connection);
        continue;
      }
      Lose(*connection, Fail(Code::kUnavailable, "{}: {} in time", connection->peer,
                             connection->stage == Stage::kDialing ? "no connection" : "no answer"));
    }
    std::erase_if(unclosed_, [&](const auto& connection) {
      return HasExited(*connection) || IsClosedByPeer(*connection);
    });
    for (size_t i = 0; i < acceptors_.size(); ++i) {
      if (acceptors_[i].paused_until == 0 || acceptors_[i].paused_until > now) continue;
      acceptors_[i].paused_until = 0;
      Accept(i);
    }
    has_deadlines_ =
        !unclosed_.empty() || !failed_.empty() ||
        std::any_of(connections_.begin(), connections_.end(),
                    [](const auto& entry) { return entry.second->deadline != 0; }) ||
        std::any_of(acceptors_.begin(), acceptors_.end(),
                    [](const Acceptor& acceptor) { return acceptor.paused_until != 0; });
  }

  void Handle(const Readiness& item, LinkHandler* handler) {
    if (item.error == asio::error::operation_aborted) return;
    if (item.kind == Readiness::Kind::kAccept) return Accept(item.number);
    const auto found = connections_.find(item.number);
    if (found == connections_.end()) return;
    const std::shared_ptr<Connection> connection = found->second;  // lives as long as this call
    switch (item.kind) {
      case Readiness::Kind::kResolved:
        if (item.error) {
          return DialNext(*connection, Fail(Code::kUnavailable, "{}: {}", connection->peer,
                                            item.error.message()));
        }
        return Connect(*connection, item.resolved.begin()->endpoint());
      case Readiness::Kind::kDialed:
        return Dialed(*connection, item.error, false);
      case Readiness::Kind::kWrite:
        connection->is_writing = false;
        return connection->stage == Stage::kLingering ? Linger(*connection) : WriteOn(*connection);
      case Readiness::Kind::kRead:
        connection->is_reading = false;
        if (connection->stage == Stage::kLingering) return Linger(*connection);
        if (connection->stage == Stage::kHandshake) return OnHandshake(*connection, handler);
        if (connection->stage == Stage::kEnding) return;
        return ReadOn(*connection, handler);
      case Readiness::Kind::kAccept:
        return;
    }
  }

  const SocketOptions options_;
  const std::shared_ptr<ReadyList> ready_ = std::make_shared<ReadyList>();
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  asio::ip::tcp::resolver resolver_;
  const std::string host_;
  std::string address_;
  std::deque<Acceptor> acceptors_;
  uint64_t last_number_ = 0;
  std::map<uint64_t, std::shared_ptr<Connection>> connections_;  // by number
  std::map<uint64_t, std::shared_ptr<Connection>> links_;        // by the user's name
  std::vector<std::shared_ptr<Connection>> unclosed_;  // by their peers, which have lent memory
  size_t strangers_ = 0;
  std::deque<std::pair<uint64_t, Error>> failed_;  // that the handler is still to be told
  std::vector<std::byte> scratch_;
  std::atomic<bool> has_deadlines_{false};  // somewhere: time is looked at more often
  int64_t next_check_ = 0;
};

}  // namespace

std::unique_ptr<SocketEndpoint> OpenSockets(SocketOptions options) {
  return std::make_unique<Sockets>(std::move(options));
}

}  // namespace tkv
