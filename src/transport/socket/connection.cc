#include "transport/socket/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <tuple>
#include <utility>

#include "base/format.h"
#include "transport/socket/peer.h"

namespace tkv {
namespace {

constexpr size_t kInputBytes = size_t{64} << 10;
constexpr size_t kGuestInputBytes = size_t{8} << 10;  // for a peer that is not welcome yet
constexpr size_t kInputKept = size_t{1} << 20;        // a buffer larger than this shrinks again
// The most bytes that one turn of writing copies into shared memory.
constexpr size_t kStagedPerTurn = size_t{8} << 20;

// Checks that the blocks of a frame have the size of its bodies.
void CheckTotal(const std::vector<Block>& blocks, uint64_t body_bytes) {
  uint64_t total = 0;
  for (const Block& block : blocks) total += block.size;
  if (total == body_bytes) return;
  throw Fail(Code::kInvalidArgument, "a frame of {} bytes of bodies, its messages have {}",
             body_bytes, total);
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

// ---- stages -------------------------------------------------------------------------------------

void Connection::StartHandshake(bool is_unix, int64_t deadline) {
  if (!is_unix) {
    const int on = 1;
    setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  KeepFromChildren(socket.native_handle());
  is_unix_ = is_unix;
  stage_ = Stage::kHandshake;
  deadline_ = deadline;
}

void Connection::Greet(HandshakeOptions options, bool adds_body_checks) {
  adds_body_checks_ = adds_body_checks;
  handshake_.emplace(std::move(options), is_dialer());
  out_.AddRaw(handshake_->TakeOutput());
}

void Connection::StartTls() {
  stage_ = Stage::kSecuring;
  boost::system::error_code ignored;
  std::ignore = socket.native_non_blocking(true, ignored);
  adds_body_checks_ = false;  // each TLS record has a tag of its own
  tls_.emplace(socket.native_handle(), is_dialer(), handshake_->TlsKey());
}

void Connection::Open(bool shares_memory, const EndpointOptions& options) {
  stage_ = Stage::kOpen;
  deadline_ = 0;
  if (is_unix_ && shares_memory) lending_.emplace(options.arena, options.warn);
}

void Connection::AwaitExit(int64_t deadline) {
  stage_ = Stage::kEnding;
  deadline_ = deadline;
}

// Shuts the connection down.  While the peer may read lent memory, this side still listens: only the
// end of the peer's side says that the peer reads no more.
void Connection::StopWriting() {
  shutdown(socket.native_handle(), has_lent() ? SHUT_WR : SHUT_RDWR);
}

void Connection::Starve(int64_t now) {
  StopWriting();
  is_starved_ = true;
  stage_ = Stage::kEnding;
  deadline_ = now;
}

void Connection::Linger(int64_t deadline) {
  stage_ = Stage::kLingering;
  deadline_ = deadline;
}

void Connection::Shut(bool waits_for_peer) {
  boost::system::error_code ignored;
  if (waits_for_peer) {
    shutdown(socket.native_handle(), SHUT_WR);
    std::ignore = socket.cancel(ignored);
  } else {
    std::ignore = socket.close(ignored);
  }
  stage_ = Stage::kLingering;
}

void Connection::AwaitRead(Reactor* reactor) {
  if (is_reading_) return;
  reactor->AwaitRead(&socket, number);
  is_reading_ = true;
}

void Connection::AwaitWrite(Reactor* reactor) {
  if (is_writing_) return;
  reactor->AwaitWrite(&socket, number);
  is_writing_ = true;
}

bool Connection::IsClosedByPeer(std::vector<std::byte>* scratch) {
  for (int i = 0; i < 4; ++i) {
    const ssize_t got =
        recv(socket.native_handle(), scratch->data(), scratch->size(), MSG_DONTWAIT);
    if (got > 0) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    return has_ended_ = true;
  }
  return false;
}

void Connection::CloseAtOnce() {
  if (is_unix_ || !has_output()) return;
  const linger at_once{1, 0};
  setsockopt(socket.native_handle(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

// ---- out ----------------------------------------------------------------------------------------

void Connection::Queue(Frame frame) {
  const bool is_checked = adds_body_checks_ && frame.body_bytes > 0;
  out_.Add(std::move(frame), is_checked);
}

size_t Connection::waiting_body_bytes() const {
  return out_.body_bytes() + (lending_ ? lending_->lent_bytes() : 0);
}

// Writes to the socket, or to TLS if this process encrypts.
ssize_t Connection::Give(std::vector<iovec>* pieces) {
  const bool is_secure = tls_ && stage_ != Stage::kSecuring;
  if (is_secure && !tls_->kernel_seals()) return tls_->Send(*pieces);
  msghdr message{};
  message.msg_iov = pieces->data();
  message.msg_iovlen = pieces->size();
  return ::sendmsg(socket.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Connection::Sent(size_t bytes) {
  taken_ += bytes;
  traffic_.wire_out_bytes += bytes;
  if (tls_) traffic_.encrypted_out_bytes += bytes;
  out_.Sent(bytes);
}

// Sends the record and the file of this side's shared memory, if they are wanted.
Connection::Outcome Connection::SendFile() {
  LendRecord record;
  const int file = lending_->TakeFile(&record);
  if (file < 0) return Outcome::kMore;
  iovec piece{&record, sizeof(record)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const attached = CMSG_FIRSTHDR(&message);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(attached), &file, sizeof(int));
  const ssize_t sent = ::sendmsg(socket.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && WouldBlock()) {
    lending_->FileNotSent();
    return Outcome::kBlocked;
  }
  if (sent <= 0) return Outcome::kOver;
  traffic_.wire_out_bytes += static_cast<size_t>(sent);
  out_.AddRaw({reinterpret_cast<const char*>(&record) + sent, sizeof(record) - sent});
  return Outcome::kMore;
}

// Makes more frames ready to leave.  Returns false if the next one has to wait until the peer gives
// shared memory back.
bool Connection::Prepare(size_t* staged) {
  if (stage_ == Stage::kOpen && lending_) {
    return out_.PrepareSome(&*lending_, staged, &traffic_.shared_out_bytes);
  }
  out_.PrepareAll();
  return true;
}

Connection::Outcome Connection::Write() {
  std::vector<iovec> pieces;
  size_t staged = 0;
  while (has_output()) {
    if (staged >= kStagedPerTurn) return Outcome::kPaused;
    const bool may_go_on = Prepare(&staged);
    if (lending_ && out_.MayInsert()) {
      if (const Outcome outcome = SendFile(); outcome != Outcome::kMore) return outcome;
    }
    if (tls_ && tls_->has_output()) {
      const ssize_t flushed = tls_->Flush();
      if (flushed < 0) return WouldBlock() ? Outcome::kBlocked : Outcome::kOver;
      taken_ += static_cast<size_t>(flushed);
      continue;
    }
    pieces.clear();
    out_.Gather(&pieces);
    if (pieces.empty()) return may_go_on ? Outcome::kMore : Outcome::kWaiting;
    const ssize_t sent = Give(&pieces);
    if (sent < 0) return WouldBlock() ? Outcome::kBlocked : Outcome::kOver;
    Sent(static_cast<size_t>(sent));
  }
  return Outcome::kMore;
}

Connection::Outcome Connection::WriteOn() {
  if (cannot_write_) return Outcome::kMore;
  const Outcome outcome = Write();
  if (outcome == Outcome::kOver) {
    StopWriting();
    cannot_write_ = true;
  }
  NoteTaking(outcome);
  return outcome;
}

// Notes since when the peer has taken nothing.
void Connection::NoteTaking(Outcome outcome) {
  const bool is_stuck = outcome == Outcome::kBlocked || outcome == Outcome::kWaiting;
  const bool has_taken = std::exchange(taken_when_noted_, taken_) != taken_;
  if (!is_stuck) {
    blocked_since_ = 0;
  } else if (blocked_since_ == 0 || has_taken) {
    blocked_since_ = SteadyNow();
  }
}

// ---- in -----------------------------------------------------------------------------------------

Connection::Outcome Connection::ReadHandshake() {
  while (const size_t wanted = handshake_->wanted()) {
    char bytes[Greeting::kReasonMax];
    const ssize_t got =
        ::recv(socket.native_handle(), bytes, std::min(wanted, sizeof(bytes)), MSG_DONTWAIT);
    if (got < 0) return WouldBlock() ? Outcome::kBlocked : Outcome::kOver;
    if (got == 0) return Outcome::kOver;
    traffic_.wire_in_bytes += static_cast<size_t>(got);
    handshake_->Receive({bytes, static_cast<size_t>(got)});
    out_.AddRaw(handshake_->TakeOutput());
  }
  return Outcome::kMore;
}

// Starts the landing of a frame whose head has arrived.
void Connection::Land(LinkHandler* handler, const FrameHeader& header) {
  const size_t head_bytes = sizeof(FrameHeader) + header.meta_bytes;
  const std::byte* lent = nullptr;
  if (lending_ && lending_->has_body()) lent = lending_->Body(header.body_bytes);
  std::vector<Block> blocks = handler->Land(link, {in_.data() + in_begin_, head_bytes}, lent);
  in_begin_ += head_bytes;
  CheckTotal(blocks, header.body_bytes);
  landing_.Start(std::move(blocks), (header.flags & kChecksBodies) != 0);
  if (lent == nullptr) return;
  traffic_.shared_in_bytes += header.body_bytes;
  landing_.Copy(lent);
}

// Compares the checksum that follows the bodies.  Returns false if more bytes are needed.
bool Connection::TakeCheck() {
  uint64_t value = 0;
  if (in_end_ - in_begin_ < sizeof(value)) return false;
  std::memcpy(&value, in_.data() + in_begin_, sizeof(value));
  in_begin_ += sizeof(value);
  landing_.Check(value);
  return true;
}

// Handles a record of shared memory.  Returns false if more bytes are needed.
bool Connection::ParseRecord() {
  LendRecord record;
  if (in_end_ - in_begin_ < sizeof(record)) return false;
  std::memcpy(&record, in_.data() + in_begin_, sizeof(record));
  in_begin_ += sizeof(record);
  lending_->Receive(record);
  if (record.kind == LendRecord::Kind::kFree) ++taken_;
  out_.AddRaw(lending_->TakeAnswers());
  return true;
}

// Handles the head of a frame, or a record.  Returns false if more bytes are needed.
bool Connection::ParseHead(LinkHandler* handler) {
  const size_t here = in_end_ - in_begin_;
  uint32_t magic = 0;
  if (here < sizeof(magic)) return false;
  std::memcpy(&magic, in_.data() + in_begin_, sizeof(magic));
  if (!is_welcome) is_welcome = handler->IsWelcome(link);
  if (lending_ && is_welcome && magic == kLendMagic) return ParseRecord();
  if (here < sizeof(FrameHeader)) return false;
  const std::span<const std::byte> bytes(in_.data() + in_begin_, here);
  const FrameHeader header = DecodeHeader(bytes.first(sizeof(FrameHeader)),
                                          is_welcome ? FrameLimits{} : FrameLimits::Unproved());
  const size_t head_bytes = sizeof(FrameHeader) + header.meta_bytes;
  if (here < head_bytes) {
    // The buffer grows with the bytes that have arrived, not with the announced size.
    MoveInputToFront();
    if (here == in_.size()) in_.resize(std::min(head_bytes, in_.size() * 2));
    return false;
  }
  Land(handler, header);
  return true;
}

// Handles the bodies of the frame that is landing.  Returns false if more bytes are needed.
bool Connection::ParseBodies(LinkHandler* handler) {
  in_begin_ += landing_.Fill(in_.data() + in_begin_, in_end_ - in_begin_);
  if (!landing_.has_all()) return false;
  if (landing_.is_checked() && !TakeCheck()) return false;
  landing_.Finish();
  has_said_hello_ = true;
  handler->Received(link);
  if (lending_ && lending_->has_body()) {
    lending_->Taken();
    out_.AddRaw(lending_->TakeAnswers());
  }
  return true;
}

// Handles the bytes in the buffer.  Returns false if more bytes are needed.
bool Connection::Parse(LinkHandler* handler) {
  if (!landing_.is_active() && !ParseHead(handler)) return false;
  return !landing_.is_active() || ParseBodies(handler);  // a record has no bodies
}

// Takes over the one file that may accompany the bytes: the file of the peer's arena.
//   throws  kInvalidArgument  more than one file, or the peer is not welcome yet
void Connection::TakeFiles(msghdr* message) {
  // Bounded by the room that Receive gives.  Takes no memory: a file that is not noted stays open.
  std::array<int, 4> found;
  size_t count = 0;
  for (cmsghdr* at = CMSG_FIRSTHDR(message); at != nullptr; at = CMSG_NXTHDR(message, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    const size_t more = std::min((at->cmsg_len - CMSG_LEN(0)) / sizeof(int), found.size() - count);
    std::memcpy(found.data() + count, CMSG_DATA(at), more * sizeof(int));
    count += more;
  }
  const std::span<const int> files(found.data(), count);
  const bool is_cut = (message->msg_flags & MSG_CTRUNC) != 0;
  if (files.size() == 1 && !is_cut && is_welcome) return lending_->TakeFrom(files[0]);
  for (const int file : files) close(file);
  if (files.empty() && !is_cut) return;
  // No descriptor was left for the file (unix(7)): bodies come through the socket.
  if (files.empty() && is_welcome) return lending_->LoseFile();
  throw Fail(Code::kInvalidArgument, "shared memory: {}",
             is_welcome ? "more than one file at once" : "a file before HELLO");
}

ssize_t Connection::Receive(std::vector<iovec>* pieces) {
  if (tls_) return tls_->Receive(*pieces);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];  // alignment leaves room for two files
  msghdr message{};
  message.msg_iov = pieces->data();
  message.msg_iovlen = pieces->size();
  if (lending_) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  const ssize_t got = ::recvmsg(socket.native_handle(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got >= 0 && lending_) TakeFiles(&message);
  return got;
}

// Makes the buffer for input.  A member's is larger, unless memory is lacking.
void Connection::MakeInputBuffer() {
  const size_t bytes = is_welcome ? kInputBytes : kGuestInputBytes;
  if (in_.size() >= bytes) return;
  try {
    in_.resize(bytes);
  } catch (const std::bad_alloc&) {
    if (in_.empty()) throw;
  }
}

void Connection::MoveInputToFront() {
  if (in_begin_ == 0) return;
  std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
  in_end_ -= in_begin_;
  in_begin_ = 0;
}

// Makes room in the buffer behind its bytes.
void Connection::MakeInputRoom() {
  if (in_begin_ == in_end_) {
    in_begin_ = in_end_ = 0;
    if (in_.size() > kInputKept) in_ = std::vector<std::byte>(kInputBytes);
  } else if (in_end_ == in_.size()) {  // the buffer ends within a head
    MoveInputToFront();
  }
}

Connection::Outcome Connection::Read(LinkHandler* handler, std::vector<std::byte>* scratch,
                                     size_t bytes_max) {
  if (!is_welcome) is_welcome = handler->IsWelcome(link);
  MakeInputBuffer();
  std::vector<iovec> pieces;
  const uint64_t shared_before = traffic_.shared_in_bytes;
  // Handles the frames that have arrived.  Returns false if the connection is over, or if so much
  // was copied from shared memory that the turn is over.  The frames left are then in the buffer.
  const auto parse_all = [&] {
    while (Parse(handler)) {
      if (stage_ != Stage::kOpen) return false;  // closed by a frame just handled
      if (traffic_.shared_in_bytes - shared_before >= bytes_max) return false;
    }
    return true;
  };
  if (in_begin_ != in_end_ && !parse_all()) return Outcome::kMore;
  for (size_t total = 0; total < bytes_max;) {
    MakeInputRoom();
    pieces.clear();
    const size_t body_bytes = landing_.AddPieces(&pieces, scratch);
    size_t asked = body_bytes;
    if (landing_.bytes_left() == body_bytes) {  // read the bytes behind the bodies, too
      pieces.push_back({in_.data() + in_end_, in_.size() - in_end_});
      asked += in_.size() - in_end_;
    }
    const ssize_t got = Receive(&pieces);
    const bool has_more = tls_ && tls_->has_input();  // the rest is read in the next turn
    if (got < 0 && has_more) return Outcome::kMore;
    if (got < 0) return WouldBlock() ? Outcome::kBlocked : Outcome::kOver;
    if (got == 0) return Outcome::kOver;
    size_t rest = static_cast<size_t>(got);
    traffic_.wire_in_bytes += rest;
    if (tls_) traffic_.encrypted_in_bytes += rest;
    total += rest;
    const size_t landed = std::min(rest, body_bytes);
    landing_.NoteRead(pieces, landed);
    in_end_ += rest - landed;
    if (!parse_all()) return Outcome::kMore;
    if (static_cast<size_t>(got) < asked) return has_more ? Outcome::kMore : Outcome::kBlocked;
  }
  return Outcome::kMore;
}

}  // namespace tkv
