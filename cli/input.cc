#include "input.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>

#include "tkv/error.h"

namespace tkv::cli {

Input::Input() : is_terminal_(isatty(STDIN_FILENO) == 1) {}

void Input::Choose(const std::string& given, int workers) {
  rank_.reset();
  if (given == "none") return;
  int rank = 0;
  const char* const end = given.data() + given.size();
  const auto [stop, error] = std::from_chars(given.data(), end, rank);
  const bool is_number = given.empty() || (error == std::errc() && stop == end);
  if (!is_number || rank < 0 || rank >= workers) {
    throw Error(Code::kInvalidArgument, "launch: --stdin " + given +
                                            ": the rank of a worker, from 0 to " +
                                            std::to_string(workers - 1) + ", or none is needed");
  }
  rank_ = rank;
}

bool Input::IsFor(const Seat& seat) const {
  return seat.role == Job::Role::kWorker && seat.rank == rank_ && !seat.is_restorer;
}

bool Input::IsReadable() const {
  if (!is_terminal_ || is_lost_) return false;
  const pid_t foreground = tcgetpgrp(STDIN_FILENO);
  return foreground < 0 || foreground == getpgrp();  // below 0: another session's terminal
}

std::optional<std::string> Input::Read() {
  char bytes[PIPE_BUF];
  const ssize_t got = read(STDIN_FILENO, bytes, sizeof(bytes));
  if (got >= 0) return std::string(bytes, static_cast<size_t>(got));
  // EIO: a shell has put the launcher into the background just now.
  if (errno == EINTR || errno == EAGAIN || (errno == EIO && !IsReadable())) return {};
  is_lost_ = true;
  return std::string();
}

}  // namespace tkv::cli
