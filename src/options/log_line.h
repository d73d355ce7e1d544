// Lines of the log on standard error.

#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>

namespace tkv {

// A user's function that receives each line of the log.  Any thread may call it, also for a store
// that is being dropped.  If the function throws, the line is lost.
using LogFunction = std::function<void(int level, const std::string& text)>;
LogFunction WithoutThrowing(LogFunction log);

// Standard error.  Tests use another file instead.
inline constexpr int kLogFile = 2;

// Writes one line, at most 4 KiB of it, in one piece.
// The caller may hold the lock of a node, so the call must not block.  If nobody reads the pipe,
// socket or terminal, the line is lost.  The next line that is written reports how many were lost.
//   blocks  never, but for a disk
void WriteLogLine(std::string line, int file = kLogFile) noexcept;

// Calls write(), but a closed pipe causes no SIGPIPE: errno is EPIPE.
ssize_t WriteWithoutSignal(int file, std::string_view text) noexcept;

}  // namespace tkv
