#include "transport/socket/connection.h"

#include <algorithm>
#include <utility>

namespace tkv {

void Connection::StartHandshake(bool is_unix, int64_t deadline) {
  socket_.Configure(is_unix);
  stage_ = Stage::kHandshake;
  deadline_ = deadline;
}

void Connection::Greet(HandshakeOptions options, bool adds_body_checks) {
  writer_.CheckBodies(adds_body_checks);
  handshake_.emplace(std::move(options), is_dialer());
  writer_.AddRaw(handshake_->TakeOutput());
}

bool Connection::ReadHandshake() {
  while (const size_t wanted = handshake_->wanted()) {
    char bytes[Greeting::kReasonMax];
    const ssize_t got = socket_.ReceivePlain(bytes, std::min(wanted, sizeof(bytes)));
    if (got < 0) return WouldBlock();
    if (got == 0) return false;
    traffic_.wire_in_bytes += static_cast<size_t>(got);
    handshake_->Receive({bytes, static_cast<size_t>(got)});
    writer_.AddRaw(handshake_->TakeOutput());
  }
  return true;
}

void Connection::StartTls() {
  stage_ = Stage::kSecuring;
  writer_.CheckBodies(false);  // each TLS record has a tag of its own
  socket_.StartTls(is_dialer(), handshake_->TlsKey());
}

void Connection::Open(bool shares_memory, const EndpointOptions& options) {
  stage_ = Stage::kOpen;
  deadline_ = 0;
  if (socket_.is_unix() && shares_memory) lending_.emplace(options.arena, options.warn);
  Lending* const lending = lending_ ? &*lending_ : nullptr;
  reader_.Start(lending);
  writer_.StartLending(lending);
}

// Enters a stage in which no frames are read and no bodies are lent.
void Connection::Leave(Stage next, int64_t deadline) {
  stage_ = next;
  deadline_ = deadline;
  reader_.Stop();
  writer_.StopLending();
}

void Connection::AwaitExit(int64_t deadline) { Leave(Stage::kEnding, deadline); }

void Connection::Starve(int64_t now) {
  writer_.End();
  is_starved_ = true;
  Leave(Stage::kEnding, now);
}

void Connection::Linger(int64_t deadline) { Leave(Stage::kLingering, deadline); }

void Connection::CloseAtOnce() {
  if (writer_.has_output()) socket_.ResetOnClose();
}

void Connection::Shut(bool waits_for_peer) {
  if (waits_for_peer) {
    socket_.EndOutput();
    socket_.Cancel();
  } else {
    socket_.Close();
  }
  Leave(Stage::kLingering, deadline_);
}

}  // namespace tkv
