#include "transport/socket/endpoint.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <deque>
#include <map>
#include <new>
#include <optional>
#include <tuple>

#include "base/format.h"
#include "transport/socket/connection.h"
#include "transport/socket/connection_table.h"
#include "transport/socket/dialer.h"
#include "transport/socket/listener.h"
#include "transport/socket/peer.h"
#include "transport/socket/process_watch.h"
#include "transport/socket/reactor.h"
#include "transport/socket/reports.h"

namespace tkv {
namespace {

namespace asio = boost::asio;
using asio::generic::stream_protocol;
using Outcome = Connection::Outcome;
using Stage = Connection::Stage;
using Standing = Connection::Standing;

constexpr int64_t kCheckNanoseconds = 50'000'000;
// From the close of a process's sockets to its end.
constexpr int64_t kExitNanoseconds = 50'000'000;
constexpr size_t kReadBytesPerTurn = size_t{8} << 20;
constexpr size_t kScratchBytes = size_t{256} << 10;

// An endpoint of TCP and Unix sockets, driven by one reactor.
class Sockets final : public Endpoint {
 public:
  explicit Sockets(SocketOptions options)
      : options_(std::move(options)),
        host_(HostId()),
        dialer_(&options_, host_, &reactor_),
        reports_(options_.stands, options_.budgets.stand_nanoseconds, &connections_),
        listener_(&options_, host_, &reactor_, &reports_,
                  [this](const auto& connection, bool is_unix) { Enter(connection, is_unix); }),
        scratch_(kScratchBytes) {
    for (const std::string& where : options_.listen) listener_.Listen(where);
  }

  const std::string& address() const override { return listener_.address(); }

  void Dial(uint64_t link, const std::string& address) override {
    auto connection = Add(link);
    connection->deadline = SteadyNow() + Dialer::kNanoseconds;
    has_deadlines_ = true;
    try {
      Advance(*connection, dialer_.Start(connection.get(), address));
    } catch (const Error& error) {
      Lose(*connection, error);
    }
  }

  void Send(uint64_t link, Frame frame) override {
    const auto connection = connections_.FindLink(link);  // lives as long as this call
    if (connection == nullptr || connection->stage != Stage::kOpen) return;
    const bool is_first = !connection->has_output();
    connection->Queue(std::move(frame));
    if (is_first) WriteOn(*connection);
    CheckOutput(*connection);
  }

  void Close(uint64_t link) override {
    const auto connection = connections_.FindLink(link);
    if (connection == nullptr) return;
    connections_.RemoveLink(link);
    const bool was_open = connection->stage == Stage::kOpen;
    KeepProcess(*connection);
    connection->link = 0;
    const bool may_linger = connection->DropBodies() && was_open;
    try {
      if (!may_linger) return Drop(*connection);
      connection->stage = Stage::kLingering;
      connection->deadline = SteadyNow() + options_.budgets.linger_nanoseconds;
      has_deadlines_ = true;
      Linger(*connection);
    } catch (const std::bad_alloc&) {
      Starve(*connection);
    }
  }

  void ReleaseSource(const void* data, size_t bytes) override {
    for (auto& [number, connection] : connections_.all()) connection->ReleaseSource(data, bytes);
  }
  void ReleaseTarget(const void* data, size_t bytes) override {
    for (auto& [number, connection] : connections_.all()) connection->ReleaseTarget(data, bytes);
  }

  // A lack of memory costs the connection whose event needed it, and nothing else.
  size_t Poll(LinkHandler* handler, size_t events_max) override {
    const size_t arrived = reactor_.Collect();
    size_t count = 0;
    while (count < std::min(arrived, events_max) && (count == 0 || handler->MayGoOn())) {
      const std::optional<Readiness> item = reactor_.Take();
      if (!item) break;
      Handle(*item, handler);
      ++count;
    }
    for (const Resolver::Answer& answer : dialer_.TakeAnswers()) {
      Resolved(answer);
      ++count;
    }
    try {
      CheckDeadlines(handler);
    } catch (const std::bad_alloc&) {
      has_deadlines_ = true;  // the next check goes on
    }
    while (!failed_.empty()) {
      const auto [link, error] = std::move(failed_.front());
      failed_.pop_front();
      handler->Closed(link, error);
      lost_traffic_.erase(link);
      ++count;
    }
    return count;
  }

  bool Wait(int64_t nanoseconds) override {
    return reactor_.Wait(has_deadlines_ ? std::min(nanoseconds, kCheckNanoseconds) : nanoseconds);
  }

  void Wake() override { reactor_.Wake(); }

  TrafficStats Traffic(uint64_t link) const override {
    if (const auto connection = connections_.FindLink(link)) return connection->traffic();
    const auto lost = lost_traffic_.find(link);
    return lost == lost_traffic_.end() ? TrafficStats() : lost->second;
  }

 private:
  // ---- new connections

  // Enters a connection that the listener has accepted, as a stranger.
  //   throws  std::bad_alloc; the connection ends
  void Enter(const std::shared_ptr<Connection>& connection, bool is_unix) {
    connections_.Enter(connection);
    try {
      Admit(*connection, is_unix ? Standing::kUnixStranger : Standing::kTcpStranger);
      Shake(*connection, is_unix);
      AwaitRead(*connection);
    } catch (const std::bad_alloc&) {
      Starve(*connection);
      throw;
    }
  }

  void Accept(uint64_t place) {
    listener_.Accept(place);
    if (listener_.is_paused()) has_deadlines_ = true;
  }

  // ---- admission: see budgets.h

  // Changes the standing of a connection.  If that standing has no place left, closes its oldest
  // connection.
  void Admit(Connection& connection, Standing standing) {
    const bool is_guest = standing == Standing::kGuest;
    if (standing != Standing::kNone && standing != Standing::kMember) {
      const size_t max = is_guest ? options_.budgets.guests_max : options_.budgets.strangers_max;
      if (static_cast<size_t>(counts_[static_cast<size_t>(standing)]) >= max) DropOldest(standing);
    }
    --counts_[static_cast<size_t>(connection.standing)];
    ++counts_[static_cast<size_t>(standing)];
    connection.standing = standing;
  }

  void DropOldest(Standing standing) {
    const auto is_meant = [&](const auto& entry) { return entry.second->standing == standing; };
    const auto& all = connections_.all();
    const auto oldest = std::find_if(all.begin(), all.end(), is_meant);
    if (oldest == all.end()) return;
    const std::shared_ptr<Connection> connection = oldest->second;
    Lose(*connection, Fail(Code::kUnavailable, "{}: too many others", connection->peer));
  }

  // Gives a guest more time after its first frame, and makes it a member when the node has welcomed
  // it.
  void Promote(Connection& connection) {
    if (connection.standing != Standing::kGuest || connection.stage != Stage::kOpen) return;
    if (connection.is_welcome) {
      connection.deadline = 0;
      return Admit(connection, Standing::kMember);
    }
    if (!connection.has_said_hello || connection.has_more_time) return;
    connection.has_more_time = true;
    connection.deadline = SteadyNow() + options_.budgets.welcome_nanoseconds;
  }

  // Closes a connection with too much waiting output, but only if the peer dialed: if this side
  // dialed, it asked for its traffic itself.
  void CheckOutput(Connection& connection) {
    if (connection.is_dialer() || connection.stage != Stage::kOpen) return;
    const SocketBudgets& budgets = options_.budgets;
    const size_t heads = connection.waiting_head_bytes(), bodies = connection.waiting_body_bytes();
    if (heads <= budgets.head_bytes_max && bodies <= budgets.body_bytes_max) return;
    Abort(connection);
    Lose(connection, Fail(Code::kResourceExhausted, "{}: it does not read; {} + {} bytes wait",
                          connection.peer, heads, bodies));
  }

  static Error Ended(const Connection& connection) {
    return Fail(Code::kAborted, "{}: its process has ended", connection.peer);
  }

  // Keeps the process of a peer whose connection is ending, for a later dial of its address.
  void KeepProcess(const Connection& connection) {
    const bool was_open = connection.stage == Stage::kOpen || connection.stage == Stage::kEnding;
    if (!connection.is_dialer() || !was_open || connection.process.is_empty()) return;
    processes_.Keep(connection.dial->address, connection.process);
  }

  // Ends a connection that the peer has closed.  If the peer is a process of this host, waits a
  // moment to learn whether the process has ended as well.
  void End(Connection& connection) {
    if (connection.is_starved) {
      return Lose(connection, Fail(Code::kResourceExhausted,
                                   "{}: this process has no memory for it", connection.peer));
    }
    connection.has_ended = true;
    if (connection.process.HasExited()) return Lose(connection, Ended(connection));
    if (connection.process.is_empty() || connection.stage == Stage::kEnding) {
      return Lose(connection,
                  Fail(Code::kUnavailable, "{}: the connection is lost", connection.peer));
    }
    connection.stage = Stage::kEnding;
    connection.deadline = SteadyNow() + kExitNanoseconds;
    has_deadlines_ = true;
  }

  // Ends a connection for which memory was lacking.  The peer sees the end at once.  The rest takes
  // memory, and CheckDeadlines tries it until there is some.
  void Starve(Connection& connection) {
    shutdown(connection.socket.native_handle(), SHUT_RDWR);
    connection.is_starved = true;
    connection.stage = Stage::kEnding;
    connection.deadline = SteadyNow();
    has_deadlines_ = true;
    reports_.CannotKeep(asio::error::no_memory);
  }

  // ---- dialing

  std::shared_ptr<Connection> Add(uint64_t link) {
    auto connection = std::make_shared<Connection>(reactor_.context());
    connection->link = link;
    // The link is first, so that Close finds it if there is no memory for the number.
    connections_.SetLink(link, connection);
    connections_.Enter(connection);
    return connection;
  }

  // Acts on the state of a dial.
  void Advance(Connection& connection, const Dialer::Result& result) {
    switch (result.kind) {
      case Dialer::Result::Kind::kWaits:
        return;
      case Dialer::Result::Kind::kFailed:
        return Lose(connection, *result.error);
      case Dialer::Result::Kind::kConnected:
        Shake(connection, result.is_unix);
        connection.QueueRaw(connection.handshake->TakeOutput());
        WriteOn(connection);
        return AwaitRead(connection);
    }
  }

  void Resolved(const Resolver::Answer& answer) {
    const auto connection = connections_.Find(answer.asker);
    if (connection == nullptr || connection->stage != Stage::kDialing) return;
    try {
      Advance(*connection, dialer_.Resolved(connection.get(), answer.found));
    } catch (const std::bad_alloc&) {
      Starve(*connection);
    }
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
    connection.deadline = SteadyNow() + options_.budgets.handshake_nanoseconds;
    has_deadlines_ = true;
    HandshakeOptions options{options_.who, options_.token, is_unix || options_.insecure_network,
                             options_.version, connection.peer};
    options.can_tls = !is_unix && !options_.token.empty() && options_.tls != UseTls::kNever;
    options.wants_tls = options.can_tls &&
                        (options_.tls == UseTls::kAlways || !IsWithinThisHost(connection.socket));
    connection.handshake.emplace(std::move(options), connection.is_dialer());
  }

  void OnHandshake(Connection& connection, LinkHandler* handler) {
    Outcome outcome = Outcome::kOver;
    try {
      outcome = connection.ReadHandshake();
      if (connection.handshake->done() && connection.handshake->uses_tls()) StartTls(connection);
    } catch (const Error& error) {
      return Lose(connection, Fail(Code::kUnavailable, "{}: {}", connection.peer, error.what()));
    }
    if (connection.has_output()) WriteOn(connection);
    if (connection.handshake->failed()) return Lose(connection, *connection.handshake->failed());
    if (outcome == Outcome::kOver) {
      // A dialer with a wrong proof learns nothing more than this.
      return Lose(connection, Fail(Code::kUnavailable,
                                   "{} has closed the connection before it was "
                                   "open",
                                   connection.peer));
    }
    if (!connection.handshake->done()) return AwaitRead(connection);
    if (connection.tls) return Secure(connection, handler);
    Open(connection, handler);
  }

  static void StartTls(Connection& connection) {
    connection.stage = Stage::kSecuring;
    boost::system::error_code ignored;
    std::ignore = connection.socket.native_non_blocking(true, ignored);
    connection.adds_body_checks = false;  // each TLS record has a tag of its own
    connection.tls.emplace(connection.socket.native_handle(), connection.is_dialer(),
                           connection.handshake->TlsKey());
  }

  void Secure(Connection& connection, LinkHandler* handler) {
    if (connection.has_output()) WriteOn(connection);  // the end of TensorKV's own handshake
    if (connection.has_output()) return;
    Tls::Step step{};
    try {
      step = connection.tls->Shake();
    } catch (const Error& error) {
      return Lose(connection, Fail(Code::kUnavailable, "{}: {}", connection.peer, error.what()));
    }
    if (step == Tls::Step::kReads) return AwaitRead(connection);
    if (step == Tls::Step::kWrites) return AwaitWrite(connection);
    Open(connection, handler);
  }

  // Opens the connection: both sides have proved themselves.
  void Open(Connection& connection, LinkHandler* handler) {
    connection.stage = Stage::kOpen;
    connection.deadline = 0;
    if (connection.is_unix && options_.share_memory) {
      connection.lending.emplace(options_.arena, options_.warn);
    }
    if (connection.is_dialer()) {
      processes_.Forget(connection.dial->address);
      connection.is_welcome = true;
      handler->Opened(connection.link);
    } else {
      Admit(connection, Standing::kGuest);
      connection.deadline = SteadyNow() + options_.budgets.hello_nanoseconds;
      connection.link = handler->Accepted();
      connections_.SetLink(connection.link, connections_.Find(connection.number));
    }
    // Bytes that followed the handshake are read at once.
    reactor_.ReadAgain(connection.number);
  }

  // ---- reading and writing

  void AwaitRead(Connection& connection) {
    if (connection.is_reading) return;
    reactor_.AwaitRead(&connection.socket, connection.number);
    connection.is_reading = true;
  }

  void AwaitWrite(Connection& connection) {
    if (connection.is_writing) return;
    reactor_.AwaitWrite(&connection.socket, connection.number);
    connection.is_writing = true;
  }

  // Writes the waiting output.  Any error ends the connection, even an error of this machine alone
  // (no memory, a firewall rule).  The connection is shut down here; the next read reports the end.
  void WriteOn(Connection& connection) {
    const uint64_t before = connection.taken();
    const Outcome outcome = connection.Write();
    if (outcome == Outcome::kOver) shutdown(connection.socket.native_handle(), SHUT_RDWR);
    const bool is_stuck = outcome == Outcome::kBlocked || outcome == Outcome::kWaiting;
    if (!is_stuck) {
      connection.blocked_since = 0;
    } else if (connection.blocked_since == 0 || connection.taken() != before) {
      connection.blocked_since = SteadyNow();
      has_deadlines_ = true;
    }
    if (outcome == Outcome::kBlocked || outcome == Outcome::kPaused) AwaitWrite(connection);
  }

  void ReadOn(Connection& connection, LinkHandler* handler) {
    Outcome outcome = Outcome::kOver;
    try {
      outcome = connection.Read(handler, &scratch_, kReadBytesPerTurn);
    } catch (const Error& error) {
      // This code does not blame the peer: it may be dialed again.
      const Error reason = Fail(Code::kInvalidArgument, "{}: {}", connection.peer, error.what());
      return Lose(connection, reason);
    }
    if (connection.stage != Stage::kOpen) return;
    Promote(connection);
    if (outcome == Outcome::kOver) return End(connection);
    // Reading may have brought lent memory back, or records that give it back to the peer.
    if (connection.lending && connection.has_output()) WriteOn(connection);
    CheckOutput(connection);
    if (connection.stage != Stage::kOpen) return;
    if (outcome == Outcome::kBlocked) return AwaitRead(connection);
    reactor_.ReadAgain(connection.number);
  }

  // Sends the rest after a close, then waits until the peer closes its side.
  void Linger(Connection& connection) {
    if (connection.Write() == Outcome::kBlocked) return AwaitWrite(connection);
    shutdown(connection.socket.native_handle(), SHUT_WR);
    if (!IsClosedByPeer(connection)) return AwaitRead(connection);
    Drop(connection);
  }

  // Throws away input and returns true if the peer has closed the connection.  Bounded in each
  // call, because the peer may keep sending.
  bool IsClosedByPeer(Connection& connection) {
    for (int i = 0; i < 4; ++i) {
      const ssize_t got =
          recv(connection.socket.native_handle(), scratch_.data(), scratch_.size(), MSG_DONTWAIT);
      if (got > 0) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
      return connection.has_ended = true;
    }
    return false;
  }

  // ---- the end of a connection

  void Drop(Connection& connection) {
    Admit(connection, Standing::kNone);
    if (connection.link != 0) connections_.RemoveLink(connection.link);
    boost::system::error_code ignored;
    if (connection.has_lent() && !connection.has_ended) {
      // The peer may still be reading lent memory, even after a long silence: the connection is
      // kept until the peer closes it.
      shutdown(connection.socket.native_handle(), SHUT_WR);
      std::ignore = connection.socket.cancel(ignored);
      unclosed_.push_back(connections_.Find(connection.number));
      if (unclosed_.size() > options_.budgets.unclosed_max) unclosed_.erase(unclosed_.begin());
      has_deadlines_ = true;
    } else {
      std::ignore = connection.socket.close(ignored);
    }
    connection.stage = Stage::kLingering;
    connections_.Remove(connection.number);  // the last statement: this may be the last reference
  }

  // Makes the close of a connection to a peer that does not read immediate.  Otherwise the kernel
  // would retry unsent bytes for minutes.
  static void Abort(Connection& connection) {
    if (connection.is_unix || !connection.has_output()) return;
    const linger at_once{1, 0};
    setsockopt(connection.socket.native_handle(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  }

  void Lose(Connection& connection, const Error& reason) {
    if (reason.code() != Code::kAborted) KeepProcess(connection);
    if (connection.link != 0) {
      const bool has_ended = reason.code() == Code::kUnavailable && connection.is_dialer() &&
                             processes_.HasEnded(connection.dial->address);
      failed_.emplace_back(connection.link, has_ended ? Ended(connection) : reason);
      lost_traffic_[connection.link] = connection.traffic();
      Wake();
    }
    Drop(connection);
  }

  // Returns the reason why a connection has timed out; null: it has not.
  const char* Lateness(const Connection& connection, int64_t now) const {
    const bool is_stuck = connection.stage == Stage::kOpen && !connection.is_dialer() &&
                          connection.blocked_since != 0 &&
                          now - connection.blocked_since > options_.budgets.unread_nanoseconds;
    if (is_stuck) return "it has read nothing";
    if (connection.deadline == 0 || connection.deadline > now) return nullptr;
    if (connection.stage == Stage::kDialing) return "no connection";
    if (connection.stage == Stage::kOpen) {
      return connection.has_said_hello ? "it was not welcomed" : "no HELLO";
    }
    return "no answer";
  }

  // Returns true if the address being dialed has not answered in time and there is another.
  static bool IsToTryNext(const Connection& connection, int64_t now) {
    return connection.stage == Stage::kDialing && connection.is_dialer() &&
           connection.dial->IsToTryNext(now);
  }

  static bool HasDeadline(const Connection& connection) {
    return connection.deadline != 0 || connection.blocked_since != 0;
  }

  void CheckDeadlines(LinkHandler* handler) {
    const int64_t now = SteadyNow();
    if (!has_deadlines_ || now < next_check_) return;
    next_check_ = now + kCheckNanoseconds;
    std::vector<std::shared_ptr<Connection>> late;
    for (const auto& [number, connection] : connections_.all()) {
      if (connection->standing == Standing::kGuest && connection->stage == Stage::kOpen) {
        connection->is_welcome = connection->is_welcome || handler->IsWelcome(connection->link);
        Promote(*connection);
      }
      if (IsToTryNext(*connection, now) || Lateness(*connection, now) != nullptr) {
        late.push_back(connection);
      }
      reports_.ReportWait(connection.get(), now);
    }
    for (const auto& connection : late) {
      if (connection->stage == Stage::kEnding) {
        End(*connection);
        continue;
      }
      const char* const what = Lateness(*connection, now);
      const Error why = Fail(Code::kUnavailable, "{}: {} in time", connection->peer,
                             what != nullptr ? what : "no connection");
      if (what == nullptr) {
        Advance(*connection, dialer_.TryNext(connection.get(), why));
      } else {
        Abort(*connection);
        Lose(*connection, why);
      }
    }
    std::erase_if(unclosed_, [&](const auto& connection) {
      return connection->process.HasExited() || IsClosedByPeer(*connection);
    });
    listener_.Resume(now);
    has_deadlines_ = !unclosed_.empty() || !failed_.empty() || listener_.is_paused() ||
                     std::ranges::any_of(connections_.all(), [](const auto& entry) {
                       return HasDeadline(*entry.second);
                     });
  }

  void Handle(const Readiness& item, LinkHandler* handler) {
    if (item.error == asio::error::operation_aborted) return;
    if (item.kind == Readiness::Kind::kAccept) return Accept(item.number);
    const auto connection = connections_.Find(item.number);  // lives as long as this call
    if (connection == nullptr) return;
    try {
      HandleOf(*connection, item, handler);
    } catch (const std::bad_alloc&) {
      if (connections_.Find(item.number) != nullptr) Starve(*connection);
    }
  }

  void HandleOf(Connection& connection, const Readiness& item, LinkHandler* handler) {
    switch (item.kind) {
      case Readiness::Kind::kDialed:
        if (connection.stage != Stage::kDialing) return;
        if (item.attempt != connection.dial->attempt) return;
        return Advance(connection, dialer_.Connected(&connection, item.error));
      case Readiness::Kind::kWrite:
        connection.is_writing = false;
        if (connection.stage == Stage::kEnding) return;
        if (connection.stage == Stage::kLingering) return Linger(connection);
        if (connection.stage == Stage::kSecuring) return Secure(connection, handler);
        return WriteOn(connection);
      case Readiness::Kind::kRead:
        connection.is_reading = false;
        if (connection.stage == Stage::kLingering) return Linger(connection);
        if (connection.stage == Stage::kHandshake) return OnHandshake(connection, handler);
        if (connection.stage == Stage::kSecuring) return Secure(connection, handler);
        if (connection.stage == Stage::kEnding) return;
        return ReadOn(connection, handler);
      case Readiness::Kind::kAccept:
        return;
    }
  }

  const SocketOptions options_;
  const std::string host_;
  Reactor reactor_;
  Dialer dialer_;
  ConnectionTable connections_;
  Reports reports_;
  Listener listener_;
  // Closed here; their peers may still read lent memory.
  std::vector<std::shared_ptr<Connection>> unclosed_;
  std::array<ptrdiff_t, 5> counts_{};              // number of connections of each standing
  std::deque<std::pair<uint64_t, Error>> failed_;  // lost links not yet reported to the handler
  std::map<uint64_t, TrafficStats> lost_traffic_;  // of the links in failed_
  ProcessWatch processes_;
  std::vector<std::byte> scratch_;
  // Some connection or acceptor has one: Wait returns more often.
  std::atomic<bool> has_deadlines_{false};
  int64_t next_check_ = 0;
};

}  // namespace

std::unique_ptr<Endpoint> OpenSockets(SocketOptions options) {
  try {
    return std::make_unique<Sockets>(std::move(options));
  } catch (const boost::system::system_error& error) {  // from the reactor's creation
    throw Fail(Code::kResourceExhausted, "sockets: {}", error.code().message());
  }
}

}  // namespace tkv
