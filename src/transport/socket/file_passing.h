// Files that accompany bytes on a Unix socket (unix(7), SCM_RIGHTS).

#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <vector>

namespace tkv {

// The files that have accompanied received bytes.  Closes those that nobody takes.
class AttachedFiles {
 public:
  AttachedFiles() = default;
  ~AttachedFiles() {
    if (count_ > 0) CloseAll();
  }
  AttachedFiles(const AttachedFiles&) = delete;
  AttachedFiles& operator=(const AttachedFiles&) = delete;

  // Takes over the files of a message that recvmsg has filled.  Takes no memory, because a file that
  // is not noted would stay open.
  void TakeFrom(msghdr* message);

  size_t count() const { return count_; }
  // Returns true if there were more files than the message had room or the process descriptors for.
  bool is_cut() const { return is_cut_; }
  // Returns the last file, which the caller then owns.
  int Take() { return files_[--count_]; }

 private:
  void CloseAll();

  std::array<int, 4> files_;  // bounded by the room that ReceiveWithFiles gives
  size_t count_ = 0;
  bool is_cut_ = false;
};

// Like recvmsg into these pieces, without blocking.  `files` takes over the files that accompany
// the bytes; null: the system closes them.
ssize_t ReceiveWithFiles(int socket, std::vector<iovec>* pieces, AttachedFiles* files);
// Like send, without blocking.  The file accompanies the first byte and stays open here.
ssize_t SendWithFile(int socket, const void* data, size_t bytes, int file);

}  // namespace tkv
