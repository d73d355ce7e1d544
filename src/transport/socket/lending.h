// Large bodies between two processes of one host: they travel through memory that both can read,
// and only records of where they lie go through the Unix socket.
//
// The sender puts a body into its arena, or has it there already (a server's values), and says
// where; the receiver takes it from there while it handles the frame, and says that it has done so.
// So a body is copied once on its way from a worker's array to a server and once on its way back.
// Nothing that decides anything is read from shared memory.  What is lent may not change until the
// peer has given it back, has closed the connection, or is dead.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/arena.h"
#include "wire/frame_layout.h"

namespace tkv {

inline constexpr uint32_t kLendMagic = 0x4D564B54;  // "TKVM", where a frame has "TKV1"

struct LendRecord {  // wire layout
  // wire value: never renumber
  enum class Kind : uint8_t {
    kFile = 1,    // comes with the sender's arena
    kMapped = 2,  // the peer's arena can be read: bodies may be lent
    kBody = 3,    // that of the next frame lies at `offset`
    kFree = 4,    // what was lent at `offset` has been taken
  };
  uint32_t magic = kLendMagic;
  Kind kind{};
  uint8_t reserved[3] = {};
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(LendRecord) == 24);

// The two directions of one connection.
class Lending {
 public:
  enum class Offer : uint8_t { kInline, kLent, kFull };

  // The arena is null where this process has none: it only takes.
  Lending(std::shared_ptr<Arena> arena, std::function<void(const std::string&)> warn)
      : arena_(std::move(arena)), warn_(std::move(warn)) {}
  ~Lending();

  // ---- out
  // Lends the body of a frame: its head then begins with the record that says where it lies.
  // Otherwise it travels inline, or has to wait until the peer has given something back.
  Offer Lend(Frame* frame);
  // The record and the file that are to be sent once, before anything can be lent; -1: none.
  int TakeFile(LendRecord* record);
  void FileNotSent() { has_sent_file_ = false; }
  bool has_lent() const { return !lent_.empty(); }
  size_t lent_bytes() const { return lent_bytes_; }  // that the peer has not given back

  // ---- in
  // Takes a file over that came with the bytes.
  //   throws  kInvalidArgument  it is not the first one
  void TakeFrom(int file);
  // The file of the peer came while this process had no descriptor left for it.
  void LoseFile();
  //   throws  kInvalidArgument
  void Receive(const LendRecord& record);
  bool has_body() const { return body_.has_value(); }
  // Where the body of this frame lies.
  //   throws  kInvalidArgument  it has another size, or is not there
  const std::byte* Body(uint64_t bytes) const;
  // It has been taken.
  void Taken();
  // Records for the peer.
  std::string TakeAnswers() { return std::exchange(answers_, {}); }

 private:
  struct Lent {
    Bytes body;
    size_t staged = 0;  // bytes that were copied for it
  };

  const std::shared_ptr<Arena> arena_;
  const std::function<void(const std::string&)> warn_;
  bool wants_file_ = false, has_sent_file_ = false, is_mapped_ = false;
  std::map<uint64_t, Lent> lent_;  // by offset
  size_t lent_bytes_ = 0;
  size_t staged_ = 0;  // of them, copied for this peer

  int file_ = -1;
  std::unique_ptr<ArenaView> view_;
  bool has_had_file_ = false;
  bool is_file_lost_ = false;  // and the record that tells of it has not come yet
  std::optional<LendRecord> body_;
  std::string answers_;
};

}  // namespace tkv
