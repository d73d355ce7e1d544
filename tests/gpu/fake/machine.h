// A simulated machine with GPUs, on which the fake driver's functions work.
//
// Streams are queues.  A seeded scheduler runs them during driver calls, as late as a real device
// might.  The host and each stream have a vector clock, and events join clocks.  Two uses of the
// same memory are a race if one writes and no event orders them, however they happen to run.
//
// The host cannot touch a device's memory.  The host cannot touch pinned memory that a copy uses
// until it has seen an event behind the copy.  A violation is printed and counted, and makes the
// device unusable.
//
// The driver's functions hold the machine's mutex.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/ptx_interpreter.h"

namespace tkv::fake {

// A result code of the driver, with cuda.h's numbers.
using Number = int;

// A vector clock: the known progress of the host (0) and of each stream.
class Clock {
 public:
  uint64_t Of(size_t actor) const { return actor < times_.size() ? times_[actor] : 0; }
  uint64_t Advance(size_t actor);
  void Join(const Clock& other);

 private:
  std::vector<uint64_t> times_;
};

constexpr size_t kHost = 0;

struct Moment {
  size_t actor = kHost;
  uint64_t time = 0;
};

// Returns true if the moment is known at `clock`.
inline bool IsBefore(const Moment& moment, const Clock& clock) {
  return clock.Of(moment.actor) >= moment.time;
}

// A block of memory, with the uses of its bytes.
struct Block {
  struct Threads {
    uint32_t launch = 0;  // the launch to which the two below belong
    uint32_t writer = 0;
    uint32_t reader = 0;
  };
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  struct Access {
    uint64_t begin, end;
    Moment moment;
    bool writes;
  };

  uint64_t begin = 0;
  size_t bytes = 0;
  std::byte* inside = nullptr;  // where the machine reads and writes it
  int device = -1;              // -1: pinned memory of the host
  bool is_managed = false;      // shared by host and device; the host does not touch it here
  std::vector<std::byte> own;   // of a device
  // A flag per byte of device memory.  The system allocates only the touched pages.
  std::unique_ptr<bool[], Free> is_written;
  std::unique_ptr<Threads[], Free> touched_by;  // the threads of launches that used each byte
  std::vector<Access> history;                  // uses that no later use is ordered after
};

struct Record {
  bool has_happened = false;
  Clock clock;
};

// A copy from or to pinned memory whose end the host has not seen.
struct PinnedUse {
  Block* block = nullptr;
  bool writes = false;
  std::optional<Moment> end;
};

struct Operation {
  std::string name;
  Clock host;  // the host's clock at the call
  std::vector<std::shared_ptr<Record>> waits_for;
  std::vector<std::shared_ptr<Record>> records;
  std::shared_ptr<PinnedUse> pinned;                     // may be null
  std::function<void(const Moment&, const Clock&)> run;  // may be empty
};

// A device's legacy stream and its blocking streams wait for each other: later work of either runs
// after all earlier work of the other.
enum class StreamKind : uint8_t { kNonBlocking, kBlocking, kLegacy };

struct Stream {
  size_t actor = 0;
  int device = 0;
  StreamKind kind = StreamKind::kNonBlocking;
  bool is_captured = false;
  std::shared_ptr<Record> last;  // its newest work; null: none, or the stream is non-blocking
  Clock clock;
  std::deque<Operation> queue;
};

struct Event {
  std::shared_ptr<Record> last;  // null: never recorded
};

struct Module {
  explicit Module(test::PtxKernel k) : kernel(std::move(k)) {}
  test::PtxKernel kernel;
};

struct Device {
  int number = 0;
  Number error = 0;  // sticky
  size_t used_bytes = 0;
  // The next address and the number of reserved bytes behind it.  The host cannot touch them, and
  // no address is used twice.
  uint64_t next = 0;
  uint64_t reserved = 0;
  std::vector<bool> reaches;  // by device
  Stream* legacy = nullptr;
  std::map<std::thread::id, Stream*> of_threads;
};

// A side of a two-dimensional copy, as in cuda.h.
struct Plane {
  size_t x_bytes, y;
  int kind;
  uint64_t host, device, array;
  size_t pitch;
};
struct PlaneCopy {
  Plane source, target;
  size_t width_bytes, height;
};

// A forbidden use of the machine.
struct Violation {
  Number result;
  std::string text;
};

class Machine {
 public:
  static Machine& Get();

  std::recursive_mutex mutex;
  std::vector<std::unique_ptr<Device>> devices;
  size_t device_bytes = 0;
  // Objects behind handles of the program, which become invalid with their device.
  std::map<Event*, std::unique_ptr<Event>> events;
  std::map<Module*, std::unique_ptr<Module>> modules;
  bool can_reach_peers = true;

  void Seed(uint64_t seed);
  // Runs some of the ready operations, perhaps none.
  void Turn();
  // Runs one operation.  Returns false if none is ready.
  bool Step();

  // Records that the host has seen an event; joins the clocks.
  void HostSees(const Record& record);

  uint64_t Allocate(Device* device, size_t bytes);  // 0: no room
  void* AllocatePinned(size_t bytes);               // null: no room
  bool Free(uint64_t address);
  Block* Find(uint64_t address);

  Stream* NewStream(int device, StreamKind kind);
  // Returns the stream of a handle, used with that device's context.  Null and 1 mean the legacy
  // stream, 2 the thread's stream.
  Stream* StreamOf(Stream* handle, Device* device);
  // Returns true if new work on the stream would be captured into a graph, or would break a
  // capture.
  bool IsDisturbed(const Stream& stream) const;
  bool Delete(Stream* stream);
  void Give(Stream* stream, Operation operation);
  void Copy(Stream* stream, const char* name, uint64_t target, uint64_t source, size_t bytes);
  void CopyToPeer(Stream* stream, uint64_t target, uint64_t source, size_t bytes);
  void CopyPlane(Stream* stream, const PlaneCopy& copy);
  void Fill(Stream* stream, uint64_t target, std::byte value, size_t bytes);
  void Launch(Stream* stream, const Module* module, uint32_t blocks,
              std::vector<std::byte> parameter);

  void Report(int device, const Violation& violation);
  int violations = 0;
  int launches = 0;

 private:
  Machine();
  friend class LaunchMemory;

  // Checks the use of a memory range by an operation and records it. `device` is -1 if peer access
  // does not matter.
  //   throws  Violation  not a block, or not accessible; a race
  Block& Use(int device, uint64_t address, size_t bytes, bool writes, const Moment& moment,
             const Clock& clock);
  void GiveCopy(Stream* stream, const char* name, int device, uint64_t target, uint64_t source,
                size_t bytes);
  void CopyNow(int device, uint64_t target, uint64_t source, size_t bytes, const Moment& now,
               const Clock& clock);
  void CheckRaces(Block* block, uint64_t begin, uint64_t end, bool writes, const Moment& moment,
                  const Clock& clock);
  void Run(Stream* stream);
  void Protect();

  std::mt19937_64 random_;
  uint32_t steps_of_16_ = 4;  // operations run in this many of 16 calls
  Clock host_;
  std::vector<std::unique_ptr<Stream>> streams_;
  size_t actors_ = 1;
  std::map<uint64_t, std::unique_ptr<Block>> blocks_;  // by address
  std::vector<std::shared_ptr<PinnedUse>> pinned_uses_;
  uint32_t launch_ = 0;
};

}  // namespace tkv::fake
