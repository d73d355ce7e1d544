#include "transport/socket/file_passing.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace tkv {

void AttachedFiles::TakeFrom(msghdr* message) {
  for (cmsghdr* at = CMSG_FIRSTHDR(message); at != nullptr; at = CMSG_NXTHDR(message, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    const size_t more =
        std::min((at->cmsg_len - CMSG_LEN(0)) / sizeof(int), files_.size() - count_);
    std::memcpy(files_.data() + count_, CMSG_DATA(at), more * sizeof(int));
    count_ += more;
  }
  is_cut_ = (message->msg_flags & MSG_CTRUNC) != 0;
}

void AttachedFiles::CloseAll() {
  for (size_t i = 0; i < count_; ++i) close(files_[i]);
  count_ = 0;
}

ssize_t ReceiveWithFiles(int socket, std::vector<iovec>* pieces, AttachedFiles* files) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];  // alignment leaves room for two files
  msghdr message{};
  message.msg_iov = pieces->data();
  message.msg_iovlen = pieces->size();
  if (files != nullptr) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  const ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got >= 0 && files != nullptr) files->TakeFrom(&message);
  return got;
}

ssize_t SendWithFile(int socket, const void* data, size_t bytes, int file) {
  iovec piece{const_cast<void*>(data), bytes};
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
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace tkv
