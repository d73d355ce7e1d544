// The bodies of the frame that is arriving, and the memory in which they land.

#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "wire/frame_layout.h"
#include "wire/value_check.h"

namespace tkv {

// The bodies of one frame at a time.  Their bytes are read directly into the blocks, or are copied
// there from the buffer for input.  A block without memory throws its body away.
class Landing {
 public:
  // Starts the landing of a frame.  A checksum follows the bodies if `is_checked`.
  void Start(std::vector<Block> blocks, bool is_checked);
  // Lands the only body of the frame by copying it from shared memory.
  //   throws  kInvalidArgument  the frame has several bodies; only the first would be aligned
  void Copy(const std::byte* lent);
  // Ends the landing; the blocks are forgotten.
  void Finish();
  bool is_active() const { return is_active_; }

  // Returns the bytes of the bodies that are still to arrive.
  size_t bytes_left() const;
  bool has_all() const { return block_ == blocks_.size(); }
  // Adds the memory for the next bytes.  Bytes to be thrown away go to `scratch`.  Returns how many
  // bytes were added.
  size_t AddPieces(std::vector<iovec>* pieces, std::vector<std::byte>* scratch) const;
  // Notes that bytes were read into these pieces.
  void NoteRead(const std::vector<iovec>& pieces, size_t bytes);
  // Copies bytes into the bodies.  Returns how many of the bytes belonged to them.
  size_t Fill(const std::byte* data, size_t bytes);

  // Returns true if the checksum has to be compared when all bodies have arrived.
  bool is_checked() const { return is_checked_; }
  // Compares the checksum, which is done once.
  //   throws  kDataLoss  the checksums differ
  void Check(uint64_t value);

  // Throws the bodies away that are still to land in this memory.
  void ReleaseTarget(const void* data, size_t bytes);

 private:
  void Advance(size_t bytes);

  std::vector<Block> blocks_;
  size_t block_ = 0, offset_ = 0;  // the position of the next byte
  bool is_active_ = false;
  bool is_checked_ = false;
  std::optional<ValueCheck> check_;  // of the bytes that have arrived
};

}  // namespace tkv
