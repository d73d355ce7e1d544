// Lines of the log on standard error.

#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>

namespace tkv {

// A user's function that is told each line.  Calls come from any thread, also of a store that is being
// dropped: a line whose function throws is lost.
using LogFunction = std::function<void(int level, const std::string& text)>;
LogFunction WithoutThrowing(LogFunction log);

// Standard error, or a file that takes its place in a test.
inline constexpr int kLogFile = 2;

// Writes one line, at most 4 KiB of it, in one piece.  Whoever calls may hold the lock of a node: where
// nobody reads the pipe, socket or terminal the line is lost instead, and the next one that finds
// room says how many were.
//   blocks  never, but for a disk
void WriteLogLine(std::string line, int file = kLogFile) noexcept;

// write(), which sends the process no SIGPIPE where the reader is gone: errno says EPIPE.
ssize_t WriteWithoutSignal(int file, std::string_view text) noexcept;

}  // namespace tkv
