// Shared memory for large bodies between two processes of one host.  The bodies travel through
// memory that both can read; only records with their offsets go through the Unix socket.
//
// The sender copies a body into its arena, unless the body is there already (a server's values),
// and sends its offset.  The receiver copies the body to its target or reads it in place, and then
// gives it back with a record.  No decision depends on bytes in shared memory.  The sender may not
// change a lent body until the peer has given it back, has closed the connection, or is dead.  An
// exception: if too many peers do not close, the oldest connection is dropped (budgets.h).

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
    kFile = 1,    // accompanied by the file of the sender's arena
    kMapped = 2,  // the sender of this record has mapped the peer's arena: bodies may be lent to it
    kBody = 3,    // the body of the next frame is at `offset`
    kFree = 4,    // the body lent at `offset` is given back
  };
  uint32_t magic = kLendMagic;
  Kind kind{};
  uint8_t reserved[3] = {};
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(LendRecord) == 24);

// Lends and borrows bodies on one connection, in both directions.
class Lending {
 public:
  enum class Offer : uint8_t { kInline, kLent, kFull };  // the result of Lend

  // An arena of null: this process only borrows.
  Lending(std::shared_ptr<Arena> arena, std::function<void(const std::string&)> warn)
      : arena_(std::move(arena)), warn_(std::move(warn)) {}
  ~Lending();

  // ---- out
  // Lends the body of a frame and puts the record with its offset before the frame's head.
  // kInline: the body has to go through the socket.  kFull: the frame has to wait until the peer
  // has given something back.
  Offer Lend(Frame* frame);
  // Returns the file that has to be sent once before anything can be lent, with its record; -1:
  // none.
  int TakeFile(LendRecord* record);
  void FileNotSent() { has_sent_file_ = false; }
  bool has_lent() const { return !lent_.empty(); }
  size_t lent_bytes() const { return lent_bytes_; }  // bytes that the peer has not given back
  // Returns the number of bodies that the peer has given back.
  uint64_t given_back() const { return given_back_; }

  // ---- in
  // Takes over a file that accompanied the bytes.
  //   throws  kInvalidArgument  a second file
  void TakeFrom(int file);
  // Notes that the peer's file was lost because this process had no descriptor left for it.
  void LoseFile();
  //   throws  kInvalidArgument
  void Receive(const LendRecord& record);
  bool has_body() const { return body_.has_value(); }
  // Returns the address of the lent body of the present frame.
  //   throws  kInvalidArgument  another size, misaligned, or outside of the peer's arena
  const std::byte* Body(uint64_t bytes) const;
  // Gives the lent body back to the peer; call it when the body has been copied.
  void Taken();
  // Returns records to send to the peer, once.
  std::string TakeAnswers() { return std::exchange(answers_, {}); }

 private:
  struct Lent {
    Bytes body;
    size_t staged = 0;  // bytes copied into the arena for it
  };

  Offer Stage(Lent* lent);

  const std::shared_ptr<Arena> arena_;
  const std::function<void(const std::string&)> warn_;
  bool wants_file_ = false, has_sent_file_ = false, is_mapped_ = false;
  std::map<uint64_t, Lent> lent_;  // by offset
  size_t lent_bytes_ = 0;
  uint64_t given_back_ = 0;
  size_t staged_ = 0;  // bytes of lent_ that were copied into the arena

  int file_ = -1;
  std::unique_ptr<ArenaView> view_;
  bool has_had_file_ = false;
  bool is_file_lost_ = false;  // its record has not arrived yet
  std::optional<LendRecord> body_;
  std::string answers_;
};

}  // namespace tkv
