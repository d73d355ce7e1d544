#include "transport/socket/frame_reader.h"

#include <algorithm>
#include <utility>

#include "base/format.h"

namespace tkv {
namespace {

constexpr size_t kGuestBytes = size_t{8} << 10;  // the buffer for a peer that is not welcome yet

// Checks that the blocks of a frame have the size of its bodies.
void CheckTotal(const std::vector<Block>& blocks, uint64_t body_bytes) {
  uint64_t total = 0;
  for (const Block& block : blocks) total += block.size;
  if (total == body_bytes) return;
  throw Fail(Code::kInvalidArgument, "a frame of {} bytes of bodies, its messages have {}",
             body_bytes, total);
}

}  // namespace

// The state of a call of Read.
struct FrameReader::Turn {
  LinkHandler* handler;
  uint64_t link;
  size_t bytes_max;
  size_t received = 0, copied = 0;  // bytes from the socket, and from shared memory
};

// The memory for the next bytes: first that of bodies, then the buffer.
struct FrameReader::Targets {
  std::vector<iovec> pieces;
  size_t body_bytes = 0;  // in the memory of bodies
  size_t bytes = 0;       // in all pieces
};

void FrameReader::Start(Lending* lending) {
  lending_ = lending;
  is_stopped_ = false;
}

bool FrameReader::AskWelcome(LinkHandler* handler, uint64_t link) {
  if (!is_welcome_) is_welcome_ = handler->IsWelcome(link);
  return is_welcome_;
}

// ---- the socket ---------------------------------------------------------------------------------

FrameReader::Result FrameReader::Read(LinkHandler* handler, uint64_t link,
                                      std::vector<std::byte>* scratch, size_t bytes_max) {
  // The buffer of a welcome peer is larger, unless memory is lacking.
  buffer_.Enlarge(AskWelcome(handler, link) ? InputBuffer::kUsualBytes : kGuestBytes);
  Turn turn{handler, link, bytes_max};
  if (!buffer_.is_empty() && !ParseAll(&turn)) return Result::kMore;
  Targets targets;
  while (turn.received < bytes_max) {
    FindTargets(&targets, scratch);
    const ssize_t got = Receive(&targets.pieces);
    const bool has_more = socket_->has_input();  // the rest is read in the next turn
    if (got < 0 && has_more) return Result::kMore;
    if (got < 0) return WouldBlock() ? Result::kEmpty : Result::kEnded;
    if (got == 0) return Result::kEnded;
    const auto bytes = static_cast<size_t>(got);
    turn.received += bytes;
    NoteReceived(targets, bytes);
    if (!ParseAll(&turn)) return Result::kMore;
    if (bytes < targets.bytes) return has_more ? Result::kMore : Result::kEmpty;
  }
  return Result::kMore;
}

void FrameReader::FindTargets(Targets* targets, std::vector<std::byte>* scratch) {
  buffer_.MakeRoom();
  targets->pieces.clear();
  targets->bytes = targets->body_bytes = landing_.AddPieces(&targets->pieces, scratch);
  if (landing_.bytes_left() != targets->body_bytes) return;
  const std::span<std::byte> behind = buffer_.free();  // read the bytes behind the bodies, too
  targets->pieces.push_back({behind.data(), behind.size()});
  targets->bytes += behind.size();
}

ssize_t FrameReader::Receive(std::vector<iovec>* pieces) {
  if (lending_ == nullptr) return socket_->Receive(pieces, nullptr);
  AttachedFiles files;
  const ssize_t got = socket_->Receive(pieces, &files);
  if (got >= 0) TakeFiles(&files);
  return got;
}

// Takes over the one file that may accompany the bytes: the file of the peer's arena.
//   throws  kInvalidArgument  more than one file, or the peer is not welcome yet
void FrameReader::TakeFiles(AttachedFiles* files) {
  if (files->count() == 0 && !files->is_cut()) return;
  if (is_welcome_ && files->count() == 1 && !files->is_cut()) {
    return lending_->TakeFrom(files->Take());
  }
  // No descriptor was left for the file (unix(7)): bodies come through the socket.
  if (is_welcome_ && files->count() == 0) return lending_->LoseFile();
  throw Fail(Code::kInvalidArgument, "shared memory: {}",
             is_welcome_ ? "more than one file at once" : "a file before HELLO");
}

void FrameReader::NoteReceived(const Targets& targets, size_t bytes) {
  traffic_->wire_in_bytes += bytes;
  if (socket_->uses_tls()) traffic_->encrypted_in_bytes += bytes;
  const size_t landed = std::min(bytes, targets.body_bytes);
  landing_.NoteRead(targets.pieces, landed);
  buffer_.Add(bytes - landed);
}

// ---- the frames ---------------------------------------------------------------------------------

// Handles the frames that have arrived.  Returns false if reading was stopped, or if so much was
// copied from shared memory that the turn is over.  The frames left are then in the buffer.
bool FrameReader::ParseAll(Turn* turn) {
  while (Parse(turn)) {
    if (is_stopped_ || turn->copied >= turn->bytes_max) return false;
  }
  return true;
}

// Handles the bytes in the buffer.  Returns false if more bytes are needed.
bool FrameReader::Parse(Turn* turn) {
  if (!landing_.is_active() && !ParseHead(turn)) return false;
  return !landing_.is_active() || ParseBodies(turn);  // a record has no bodies
}

// Handles the head of a frame, or a record.  Returns false if more bytes are needed.
bool FrameReader::ParseHead(Turn* turn) {
  uint32_t magic = 0;
  if (!buffer_.Peek(&magic)) return false;
  const bool is_welcome = AskWelcome(turn->handler, turn->link);
  if (lending_ != nullptr && is_welcome && magic == kLendMagic) return ParseRecord();
  const std::span<const std::byte> here = buffer_.bytes();
  if (here.size() < sizeof(FrameHeader)) return false;
  const FrameHeader header = DecodeHeader(here.first(sizeof(FrameHeader)),
                                          is_welcome ? FrameLimits{} : FrameLimits::Unproved());
  const size_t head_bytes = sizeof(FrameHeader) + header.meta_bytes;
  if (here.size() < head_bytes) {
    buffer_.GrowTowards(head_bytes);
    return false;
  }
  Land(turn, header);
  return true;
}

// Handles a record of shared memory.  Returns false if more bytes are needed.
bool FrameReader::ParseRecord() {
  LendRecord record;
  if (!buffer_.Take(&record)) return false;
  lending_->Receive(record);
  writer_->AddRaw(lending_->TakeAnswers());
  return true;
}

// Starts the landing of a frame whose head has arrived.
void FrameReader::Land(Turn* turn, const FrameHeader& header) {
  const size_t head_bytes = sizeof(FrameHeader) + header.meta_bytes;
  const bool is_lent = lending_ != nullptr && lending_->has_body();
  const std::byte* const lent = is_lent ? lending_->Body(header.body_bytes) : nullptr;
  std::vector<Block> blocks =
      turn->handler->Land(turn->link, buffer_.bytes().first(head_bytes), lent);
  buffer_.Consume(head_bytes);
  CheckTotal(blocks, header.body_bytes);
  landing_.Start(std::move(blocks), (header.flags & kChecksBodies) != 0);
  if (!is_lent) return;
  traffic_->shared_in_bytes += header.body_bytes;
  turn->copied += header.body_bytes;
  landing_.Copy(lent);
}

// Handles the bodies of the frame that is landing.  Returns false if more bytes are needed.
bool FrameReader::ParseBodies(Turn* turn) {
  const std::span<const std::byte> here = buffer_.bytes();
  buffer_.Consume(landing_.Fill(here.data(), here.size()));
  if (!landing_.has_all()) return false;
  if (landing_.is_checked()) {
    uint64_t value = 0;  // follows the bodies
    if (!buffer_.Take(&value)) return false;
    landing_.Check(value);
  }
  landing_.Finish();
  has_said_hello_ = true;
  turn->handler->Received(turn->link);
  if (lending_ != nullptr && lending_->has_body()) {
    lending_->Taken();
    writer_->AddRaw(lending_->TakeAnswers());
  }
  return true;
}

}  // namespace tkv
