// The least cost of a push and a pull of the same bytes: an exchange between two processes by a
// socket or by shared memory.  These are the limits of bench/dist.py.
//
// Reads requests from standard input, one per line, and answers each with the seconds of one
// exchange:
//   tcp BYTES REPEATS       blocking sockets over loopback: BYTES there, BYTES back
//   unix BYTES REPEATS      the same over a Unix socket
//   tcpspin, unixspin       the same with non-blocking sockets
//   shm BYTES REPEATS       three copies, as a store needs them: to shared memory, from there to
//                           the value, from the value to the output; chunks overlap

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

constexpr size_t kPart = size_t{1} << 20;  // of one system call; faster than all bytes at once

struct Wire {
  int file = -1;
  bool spins = false;

  void Send(const char* data, size_t bytes) const { Move(data, bytes, true); }
  void Receive(char* data, size_t bytes) const { Move(data, bytes, false); }
  void Move(const char* data, size_t bytes, bool out) const {
    const int flags = spins ? MSG_DONTWAIT : 0;
    while (bytes > 0) {
      const size_t part = std::min(bytes, kPart);
      const ssize_t moved = out ? send(file, data, part, flags | MSG_NOSIGNAL)
                                : recv(file, const_cast<char*>(data), part, flags);
      if (moved < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (moved <= 0) std::exit(out ? 1 : 0);  // the other side has ended
      data += moved;
      bytes -= static_cast<size_t>(moved);
    }
  }
};

// Makes both ends of a connection.
void Connect(bool tcp, int ends[2]) {
  if (!tcp) {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) Die("socketpair");
    return;
  }
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener, any, size) != 0 || listen(listener, 1) != 0) Die("listen");
  getsockname(listener, any, &size);
  ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(ends[0], any, size) != 0) Die("connect");
  ends[1] = accept(listener, nullptr, nullptr);
  close(listener);
  const int on = 1;
  for (int i = 0; i < 2; ++i) setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// Starts the other side: a process that ends with this one.
template <typename F>
pid_t Start(F f) {
  const pid_t child = fork();
  if (child < 0) Die("fork");
  if (child > 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  f();
  _exit(0);
}

double OverSocket(bool tcp, bool spins, size_t bytes, int repeats) {
  int ends[2];
  Connect(tcp, ends);
  const pid_t child = Start([&] {
    close(ends[0]);
    std::vector<char> value(bytes);
    const Wire wire{ends[1], spins};
    for (;;) {
      wire.Receive(value.data(), bytes);
      wire.Send(value.data(), bytes);
    }
  });
  close(ends[1]);
  const Wire wire{ends[0], spins};
  std::vector<char> source(bytes, 1), target(bytes);
  const auto exchange = [&] {
    wire.Send(source.data(), bytes);
    wire.Receive(target.data(), bytes);
  };
  exchange();
  const auto begin = Clock::now();
  for (int i = 0; i < repeats; ++i) exchange();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return seconds / repeats;
}

struct Progress {
  alignas(64) std::atomic<uint64_t> written;  // chunks that are in shared memory
  alignas(64) std::atomic<uint64_t> taken;    // chunks that are in the value
};

double OverMemory(size_t bytes, int repeats) {
  const size_t chunk = std::min<size_t>(bytes, size_t{1} << 20);
  const uint64_t chunks = (bytes + chunk - 1) / chunk;
  constexpr uint64_t kSlots = 4;
  const auto map = [](size_t size) {
    void* const at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) Die("mmap");
    return static_cast<char*>(at);
  };
  auto* const progress = new (map(sizeof(Progress))) Progress{};
  char* const slots = map(kSlots * chunk);
  char* const value = map(chunks * chunk);
  const auto size_of = [&](uint64_t i) { return std::min(chunk, bytes - (i % chunks) * chunk); };
  const pid_t child = Start([&] {
    for (uint64_t i = 0;; ++i) {
      while (progress->written.load(std::memory_order_acquire) <= i) {
      }
      std::memcpy(value + (i % chunks) * chunk, slots + (i % kSlots) * chunk, size_of(i));
      progress->taken.store(i + 1, std::memory_order_release);
    }
  });
  std::vector<char> source(chunks * chunk, 1), target(chunks * chunk);
  uint64_t written = 0, pulled = 0;
  const auto exchange = [&] {
    const uint64_t end = pulled + chunks;
    while (pulled < end) {
      const uint64_t taken = progress->taken.load(std::memory_order_acquire);
      if (written < end && written < taken + kSlots) {
        std::memcpy(slots + (written % kSlots) * chunk, source.data() + (written % chunks) * chunk,
                    size_of(written));
        progress->written.store(++written, std::memory_order_release);
      } else if (pulled < taken) {
        std::memcpy(target.data() + (pulled % chunks) * chunk, value + (pulled % chunks) * chunk,
                    size_of(pulled));
        ++pulled;
      }
    }
  };
  exchange();
  const auto begin = Clock::now();
  for (int i = 0; i < repeats; ++i) exchange();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  munmap(progress, sizeof(Progress));
  munmap(slots, kSlots * chunk);
  munmap(value, chunks * chunk);
  return seconds / repeats;
}

}  // namespace

int main() {
  char kind[16];
  size_t bytes = 0;
  int repeats = 0;
  while (std::scanf("%15s %zu %d", kind, &bytes, &repeats) == 3) {
    const std::string which = kind;
    double seconds = 0;
    if (which == "shm") {
      seconds = OverMemory(bytes, repeats);
    } else {
      const bool spins = which.ends_with("spin");
      seconds = OverSocket(which.starts_with("tcp"), spins, bytes, repeats);
    }
    std::printf("%.9f\n", seconds);
    std::fflush(stdout);
  }
  return 0;
}
