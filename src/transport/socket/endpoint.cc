#include "transport/socket/endpoint.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/error.hpp>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/process.h"
#include "transport/socket/admission.h"
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
using Stage = Connection::Stage;

constexpr int64_t kCheckNanoseconds = 50'000'000;
// From the close of a process's sockets to its end.
constexpr int64_t kExitNanoseconds = 50'000'000;
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
    connection->SetDeadline(SteadyNow() + Dialer::kNanoseconds);
    has_deadlines_ = true;
    try {
      Advance(*connection, dialer_.Start(connection.get(), address));
    } catch (const Error& error) {
      Lose(*connection, error);
    }
  }

  void Send(uint64_t link, Frame frame) override {
    const auto connection = connections_.FindLink(link);  // lives as long as this call
    if (connection == nullptr || connection->stage() != Stage::kOpen) return;
    const bool is_first = !connection->writer().has_output();
    connection->writer().Add(std::move(frame));
    if (is_first) Write(*connection);
    CheckOutput(*connection);
  }

  void Close(uint64_t link) override {
    const auto connection = connections_.FindLink(link);
    if (connection == nullptr) return ForgetLost(link);
    connections_.RemoveLink(link);
    const bool was_open = connection->stage() == Stage::kOpen;
    KeepProcess(*connection);
    connection->SetLink(0);
    const bool may_linger = connection->writer().DropBodies() && was_open;
    try {
      if (!may_linger) return Drop(*connection);
      connection->Linger(SteadyNow() + options_.budgets.linger_nanoseconds);
      has_deadlines_ = true;
      Linger(*connection);
    } catch (const std::bad_alloc&) {
      Starve(*connection);
    }
  }

  void ReleaseSource(const void* data, size_t bytes) override {
    for (auto& [number, connection] : connections_.all()) {
      connection->writer().ReleaseSource(data, bytes);
    }
  }
  void ReleaseTarget(const void* data, size_t bytes) override {
    for (auto& [number, connection] : connections_.all()) {
      connection->reader().ReleaseTarget(data, bytes);
    }
  }

  // A lack of memory costs the connection whose event needed it, and nothing else.
  size_t Poll(LinkHandler* handler, size_t events_max) override {
    size_t count = HandleArrived(handler, std::min(reactor_.Collect(), events_max));
    for (const Resolver::Answer& answer : dialer_.TakeAnswers()) {
      Resolved(answer);
      ++count;
    }
    try {
      CheckDeadlines(handler);
    } catch (const std::bad_alloc&) {
      has_deadlines_ = true;  // the next check goes on
    }
    return count + ReportLost(handler);
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
      connection->AwaitRead(&reactor_);
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
    if (admission_.IsFull(standing)) DropOldest(standing);
    admission_.Move(&connection, standing);
  }

  void DropOldest(Standing standing) {
    const auto is_meant = [&](const auto& entry) {
      return entry.second->notes().standing == standing;
    };
    const auto& all = connections_.all();
    const auto oldest = std::find_if(all.begin(), all.end(), is_meant);
    if (oldest == all.end()) return;
    const std::shared_ptr<Connection> connection = oldest->second;
    Lose(*connection, Fail(Code::kUnavailable, "{}: too many others", connection->peer().name));
  }

  // Closes a connection with too much waiting output.
  void CheckOutput(Connection& connection) {
    if (!admission_.HasTooMuchOutput(connection)) return;
    connection.CloseAtOnce();
    Lose(connection, Fail(Code::kResourceExhausted, "{}: it does not read; {} + {} bytes wait",
                          connection.peer().name, connection.writer().waiting_head_bytes(),
                          connection.writer().waiting_body_bytes()));
  }

  static Error Ended(const Connection& connection) {
    return Fail(Code::kAborted, "{}: its process has ended", connection.peer().name);
  }

  // Keeps the process of a peer whose connection is ending, for a later dial of its address.
  void KeepProcess(const Connection& connection) {
    const bool was_open =
        connection.stage() == Stage::kOpen || connection.stage() == Stage::kEnding;
    if (!connection.is_dialer() || !was_open || connection.peer().process.is_empty()) return;
    processes_.Keep(connection.peer().dial->address, connection.peer().process);
  }

  // Ends a connection that the peer has closed, or to which this side cannot write.  If the peer is
  // a process of this host, waits a moment to learn whether the process has ended.
  void End(Connection& connection) {
    if (connection.is_starved()) {
      return Lose(connection,
                  Fail(Code::kResourceExhausted, "{}: this process has no memory for it",
                       connection.peer().name));
    }
    if (connection.peer().process.HasExited()) return Lose(connection, Ended(connection));
    if (connection.peer().process.is_empty() || connection.stage() == Stage::kEnding) {
      return Lose(connection,
                  Fail(Code::kUnavailable, "{}: the connection is lost", connection.peer().name));
    }
    connection.AwaitExit(SteadyNow() + kExitNanoseconds);
    has_deadlines_ = true;
  }

  // Ends a connection for which memory was lacking.  The peer sees the end after the bytes that the
  // kernel already has.  The rest takes memory, and CheckDeadlines tries it until there is some.
  void Starve(Connection& connection) {
    connection.Starve(SteadyNow());
    has_deadlines_ = true;
    reports_.CannotKeep(asio::error::no_memory);
  }

  // ---- dialing

  std::shared_ptr<Connection> Add(uint64_t link) {
    auto connection = std::make_shared<Connection>(reactor_.context());
    connection->SetLink(link);
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
        Write(connection);
        return connection.AwaitRead(&reactor_);
    }
  }

  void Resolved(const Resolver::Answer& answer) {
    const auto connection = connections_.Find(answer.asker);
    if (connection == nullptr || connection->stage() != Stage::kDialing) return;
    try {
      Advance(*connection, dialer_.Resolved(connection.get(), answer.found));
    } catch (const std::bad_alloc&) {
      Starve(*connection);
    }
  }

  // ---- handshake

  void Shake(Connection& connection, bool is_unix) {
    connection.StartHandshake(is_unix, SteadyNow() + options_.budgets.handshake_nanoseconds);
    has_deadlines_ = true;
    HandshakeOptions options{options_.who, options_.token, is_unix || options_.insecure_network,
                             options_.version, connection.peer().name};
    options.can_tls = !is_unix && !options_.token.empty() && options_.tls != UseTls::kNever;
    options.wants_tls = options.can_tls && (options_.tls == UseTls::kAlways ||
                                            !IsWithinThisHost(connection.socket().system()));
    connection.Greet(std::move(options), options_.check_bodies && !is_unix);
  }

  void OnHandshake(Connection& connection, LinkHandler* handler) {
    bool is_connected = false;
    try {
      is_connected = connection.ReadHandshake();
      const Handshake& handshake = connection.handshake();
      if (handshake.done() && handshake.uses_tls()) connection.StartTls();
    } catch (const Error& error) {
      return Lose(connection,
                  Fail(Code::kUnavailable, "{}: {}", connection.peer().name, error.what()));
    }
    if (connection.writer().has_output()) Write(connection);
    if (connection.handshake().failed()) return Lose(connection, *connection.handshake().failed());
    if (!is_connected) {
      // A dialer with a wrong proof learns nothing more than this.
      return Lose(connection, Fail(Code::kUnavailable,
                                   "{} has closed the connection before it was "
                                   "open",
                                   connection.peer().name));
    }
    if (!connection.handshake().done()) return connection.AwaitRead(&reactor_);
    if (connection.socket().uses_tls()) return Secure(connection, handler);
    Open(connection, handler);
  }

  void Secure(Connection& connection, LinkHandler* handler) {
    if (connection.writer().has_output()) Write(connection);  // the end of TensorKV's own handshake
    if (connection.writer().has_output()) return;
    Tls::Step step{};
    try {
      step = connection.socket().ShakeTls();
    } catch (const Error& error) {
      return Lose(connection,
                  Fail(Code::kUnavailable, "{}: {}", connection.peer().name, error.what()));
    }
    if (step == Tls::Step::kReads) return connection.AwaitRead(&reactor_);
    if (step == Tls::Step::kWrites) return connection.AwaitWrite(&reactor_);
    Open(connection, handler);
  }

  // Opens the connection: both sides have proved themselves.
  void Open(Connection& connection, LinkHandler* handler) {
    connection.Open(options_.share_memory, options_);
    if (connection.is_dialer()) {
      processes_.Forget(connection.peer().dial->address);
      connection.reader().Welcome();
      handler->Opened(connection.link());
    } else {
      Admit(connection, Standing::kGuest);
      connection.SetDeadline(SteadyNow() + options_.budgets.hello_nanoseconds);
      connection.SetLink(handler->Accepted());
      connections_.SetLink(connection.link(), connections_.Find(connection.number()));
    }
    // Bytes that followed the handshake are read at once.
    reactor_.ReadAgain(connection.number());
  }

  // ---- reading and writing

  // Writes the waiting output.
  void Write(Connection& connection) {
    using Result = FrameWriter::Result;
    const Result result = connection.writer().Write();
    if (connection.writer().is_blocked()) has_deadlines_ = true;
    if (result == Result::kBlocked || result == Result::kPaused) {
      connection.AwaitWrite(&reactor_);
    } else if (result == Result::kFailed) {
      reactor_.ReadAgain(connection.number());
    }
  }

  void Read(Connection& connection, LinkHandler* handler) {
    using Result = FrameReader::Result;
    Result result = Result::kEnded;
    try {
      result = connection.reader().Read(handler, connection.link(), &scratch_,
                                        options_.budgets.turn_bytes_max);
    } catch (const Error& error) {
      // This code does not blame the peer: it may be dialed again.
      const Error reason =
          Fail(Code::kInvalidArgument, "{}: {}", connection.peer().name, error.what());
      return Lose(connection, reason);
    }
    if (connection.stage() != Stage::kOpen) return;
    admission_.Promote(&connection, SteadyNow());
    if (result == Result::kEnded) connection.socket().NoteEnd();
    const bool has_read_all = result == Result::kEmpty;
    if (result == Result::kEnded || (has_read_all && connection.writer().has_failed())) {
      return End(connection);
    }
    // Reading may have brought lent memory back, or records that give it back to the peer.
    if (connection.shares_memory() && connection.writer().has_output()) Write(connection);
    CheckOutput(connection);
    if (connection.stage() != Stage::kOpen) return;
    if (has_read_all) return connection.AwaitRead(&reactor_);
    reactor_.ReadAgain(connection.number());
  }

  // Sends the rest after a close, then waits until the peer closes its side.
  void Linger(Connection& connection) {
    const FrameWriter::Result result = connection.writer().WriteRest();
    if (result == FrameWriter::Result::kBlocked) return connection.AwaitWrite(&reactor_);
    connection.socket().EndOutput();
    if (!connection.socket().IsClosedByPeer(&scratch_)) return connection.AwaitRead(&reactor_);
    Drop(connection);
  }

  // ---- the end of a connection

  void Drop(Connection& connection) {
    Admit(connection, Standing::kNone);
    if (connection.link() != 0) connections_.RemoveLink(connection.link());
    // If the peer may still be reading lent memory, even after a long silence, the connection is
    // kept until the peer closes it.
    const bool is_kept = connection.writer().has_lent() && !connection.socket().has_ended();
    if (is_kept) Keep(connections_.Find(connection.number()));
    connection.Shut(is_kept);
    connections_.Remove(connection.number());  // the last statement: this may be the last reference
  }

  void Keep(const std::shared_ptr<Connection>& connection) {
    unclosed_.push_back(connection);
    if (unclosed_.size() > options_.budgets.unclosed_max) unclosed_.erase(unclosed_.begin());
    has_deadlines_ = true;
  }

  void Lose(Connection& connection, const Error& reason) {
    if (reason.code() != Code::kAborted) KeepProcess(connection);
    if (connection.link() != 0) {
      const bool has_ended = reason.code() == Code::kUnavailable && connection.is_dialer() &&
                             processes_.HasEnded(connection.peer().dial->address);
      lost_traffic_[connection.link()] = connection.traffic();
      failed_.emplace_back(connection.link(), has_ended ? Ended(connection) : reason);
      // The link is told once, also if memory is lacking for the rest.
      connections_.RemoveLink(connection.link());
      connection.SetLink(0);
      Wake();
    }
    Drop(connection);
  }

  // Forgets a lost link that the handler closes before it was told.
  void ForgetLost(uint64_t link) {
    std::erase_if(failed_, [link](const auto& lost) { return lost.first == link; });
    lost_traffic_.erase(link);
  }

  // Returns true if the address being dialed has not answered in time and there is another.
  static bool IsToTryNext(const Connection& connection, int64_t now) {
    return connection.stage() == Stage::kDialing && connection.is_dialer() &&
           connection.peer().dial->IsToTryNext(now);
  }

  // Reports the links that were lost.  Returns their number.
  size_t ReportLost(LinkHandler* handler) {
    size_t count = 0;
    for (; !failed_.empty(); ++count) {
      const auto [link, error] = std::move(failed_.front());
      failed_.pop_front();
      handler->Closed(link, error);
      lost_traffic_.erase(link);
    }
    return count;
  }

  // ---- deadlines

  void CheckDeadlines(LinkHandler* handler) {
    const int64_t now = SteadyNow();
    if (!has_deadlines_ || now < next_check_) return;
    next_check_ = now + kCheckNanoseconds;
    for (const auto& connection : FindLate(handler, now)) EndLate(*connection, now);
    std::erase_if(unclosed_, [&](const auto& connection) {
      return connection->peer().process.HasExited() ||
             connection->socket().IsClosedByPeer(&scratch_);
    });
    listener_.Resume(now);
    has_deadlines_ = !unclosed_.empty() || !failed_.empty() || listener_.is_paused() ||
                     std::ranges::any_of(connections_.all(), [](const auto& entry) {
                       return entry.second->has_deadline();
                     });
  }

  // Returns the connections whose time is over.  Promotes guests and reports waits on the way.
  std::vector<std::shared_ptr<Connection>> FindLate(LinkHandler* handler, int64_t now) {
    std::vector<std::shared_ptr<Connection>> late;
    for (const auto& [number, connection] : connections_.all()) {
      if (connection->notes().standing == Standing::kGuest && connection->stage() == Stage::kOpen) {
        connection->reader().AskWelcome(handler, connection->link());
        admission_.Promote(connection.get(), now);
      }
      if (IsToTryNext(*connection, now) || admission_.Lateness(*connection, now) != nullptr) {
        late.push_back(connection);
      }
      reports_.ReportWait(connection.get(), now);
    }
    return late;
  }

  // Ends a connection whose time is over, or dials its next address.
  void EndLate(Connection& connection, int64_t now) {
    if (connection.stage() == Stage::kEnding) return End(connection);
    const char* const what = admission_.Lateness(connection, now);
    const Error why = Fail(Code::kUnavailable, "{}: {} in time", connection.peer().name,
                           what != nullptr ? what : "no connection");
    if (what == nullptr) return Advance(connection, dialer_.TryNext(&connection, why));
    connection.CloseAtOnce();
    Lose(connection, why);
  }

  // ---- events

  // Handles events that have arrived, as long as the handler lets it.  Returns their number.
  size_t HandleArrived(LinkHandler* handler, size_t events_max) {
    size_t count = 0;
    while (count < events_max && (count == 0 || handler->MayGoOn())) {
      const std::optional<Readiness> item = reactor_.Take();
      if (!item) break;
      Handle(*item, handler);
      ++count;
    }
    return count;
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
        if (connection.stage() != Stage::kDialing) return;
        if (item.attempt != connection.peer().dial->attempt) return;
        return Advance(connection, dialer_.Connected(&connection, item.error));
      case Readiness::Kind::kWrite:
        connection.socket().NoteWritable();
        return OnWritable(connection, handler);
      case Readiness::Kind::kRead:
        connection.socket().NoteReadable();
        return OnReadable(connection, handler);
      case Readiness::Kind::kAccept:
        return;
    }
  }

  void OnWritable(Connection& connection, LinkHandler* handler) {
    if (connection.stage() == Stage::kEnding) return;
    if (connection.stage() == Stage::kLingering) return Linger(connection);
    if (connection.stage() == Stage::kSecuring) return Secure(connection, handler);
    Write(connection);
  }

  void OnReadable(Connection& connection, LinkHandler* handler) {
    if (connection.stage() == Stage::kEnding) return;
    if (connection.stage() == Stage::kLingering) return Linger(connection);
    if (connection.stage() == Stage::kHandshake) return OnHandshake(connection, handler);
    if (connection.stage() == Stage::kSecuring) return Secure(connection, handler);
    Read(connection, handler);
  }

  const SocketOptions options_;
  const std::string host_;
  Reactor reactor_;
  Dialer dialer_;
  Admission admission_{&options_.budgets};
  ConnectionTable connections_;
  Reports reports_;
  Listener listener_;
  // Closed here; their peers may still read lent memory.
  std::vector<std::shared_ptr<Connection>> unclosed_;
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
    throw Fail(Code::kResourceExhausted, "sockets: {}", SystemText(error.code()));
  }
}

}  // namespace tkv
