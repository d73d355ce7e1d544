#include "transport/socket/frame_writer.h"

#include <sys/uio.h>

#include <utility>
#include <vector>

namespace tkv {
namespace {

// The most bytes that one turn of writing copies into shared memory.
constexpr size_t kStagedPerTurn = size_t{8} << 20;

// Returns the result of a call on the socket that has just failed.
FrameWriter::Result NotSent() {
  return WouldBlock() ? FrameWriter::Result::kBlocked : FrameWriter::Result::kFailed;
}

}  // namespace

void FrameWriter::StartLending(Lending* lending) {
  lending_ = lending;
  lends_bodies_ = lending != nullptr;
}

void FrameWriter::Add(Frame frame) {
  const bool is_checked = checks_bodies_ && frame.body_bytes > 0;
  queue_.Add(std::move(frame), is_checked);
}

void FrameWriter::Sent(size_t bytes) {
  taken_ += bytes;
  traffic_->wire_out_bytes += bytes;
  if (socket_->uses_tls()) traffic_->encrypted_out_bytes += bytes;
  queue_.Sent(bytes);
}

// Sends the record and the file of this side's shared memory, if they are wanted.
FrameWriter::Result FrameWriter::SendFile() {
  LendRecord record;
  const int file = lending_->TakeFile(&record);
  if (file < 0) return Result::kDone;
  const ssize_t sent = socket_->SendFile(&record, sizeof(record), file);
  if (sent < 0 && WouldBlock()) {
    lending_->FileNotSent();
    return Result::kBlocked;
  }
  if (sent <= 0) return Result::kFailed;
  traffic_->wire_out_bytes += static_cast<size_t>(sent);
  queue_.AddRaw({reinterpret_cast<const char*>(&record) + sent, sizeof(record) - sent});
  return Result::kDone;
}

// Makes more frames ready to leave.  Returns false if the next one has to wait until the peer gives
// shared memory back.
bool FrameWriter::Prepare(size_t* staged) {
  if (lends_bodies_) return queue_.PrepareSome(lending_, staged, &traffic_->shared_out_bytes);
  queue_.PrepareAll();
  return true;
}

FrameWriter::Result FrameWriter::WriteTurn() {
  std::vector<iovec> pieces;
  size_t staged = 0;
  while (has_output()) {
    if (staged >= kStagedPerTurn) return Result::kPaused;
    const bool may_go_on = Prepare(&staged);
    if (lending_ != nullptr && queue_.MayInsert()) {
      if (const Result result = SendFile(); result != Result::kDone) return result;
    }
    if (socket_->has_output()) {
      const ssize_t flushed = socket_->Flush();
      if (flushed < 0) return NotSent();
      taken_ += static_cast<size_t>(flushed);
      continue;
    }
    pieces.clear();
    queue_.Gather(&pieces);
    if (pieces.empty()) return may_go_on ? Result::kDone : Result::kWaiting;
    const ssize_t sent = socket_->Send(&pieces);
    if (sent < 0) return NotSent();
    Sent(static_cast<size_t>(sent));
  }
  return Result::kDone;
}

FrameWriter::Result FrameWriter::Write() {
  if (has_failed_) return Result::kDone;
  const Result result = WriteTurn();
  if (result == Result::kFailed) {
    End();
    has_failed_ = true;
  }
  const bool is_stuck = result == Result::kBlocked || result == Result::kWaiting;
  stall_.Note(is_stuck, taken_ + (lending_ != nullptr ? lending_->given_back() : 0));
  return result;
}

void FrameWriter::End() {
  if (has_lent()) {
    socket_->EndOutput();
  } else {
    socket_->End();
  }
}

}  // namespace tkv
