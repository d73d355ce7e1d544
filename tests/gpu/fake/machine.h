// A pretended machine with GPUs: what the functions of the pretended driver work on.
//
// Streams are queues that a seeded scheduler runs at the calls of the driver, as late as a real device
// might.  Each stream and the host have a vector clock; events join them.  Two uses of memory, one of
// which writes, that no event orders are a race, whenever they happen to run.  Memory of a device cannot
// be touched by the host; pinned memory that a copy reads or writes cannot until the host has seen an
// event behind the copy.  What is wrong is printed, counted, and loses the device.
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

// Of a result of the driver, as cuda.h numbers them.
using Number = int;

// How far the host (0) and each stream are known to have come.
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

// Whether what happened then is known at `clock`.
inline bool IsBefore(const Moment& moment, const Clock& clock) {
  return clock.Of(moment.actor) >= moment.time;
}

// A block of memory, and who has used which bytes of it.
struct Block {
  struct Threads {
    uint32_t launch = 0;  // that the two below are of
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
  bool is_managed = false;      // of the host and the device; here the host leaves it alone
  std::vector<std::byte> own;   // of a device
  // One for each byte of a device; pages that nobody touches cost nothing.
  std::unique_ptr<bool[], Free> is_written;
  std::unique_ptr<Threads[], Free> touched_by;  // only by launches
  std::vector<Access> history;                  // that is not known to be before a later one
};

struct Record {
  bool has_happened = false;
  Clock clock;
};

// A copy from or to pinned memory that the host has not seen the end of.
struct PinnedUse {
  Block* block = nullptr;
  bool writes = false;
  std::optional<Moment> end;
};

struct Operation {
  std::string name;
  Clock host;  // when it was given
  std::vector<std::shared_ptr<Record>> waits_for;
  std::vector<std::shared_ptr<Record>> records;
  std::shared_ptr<PinnedUse> pinned;                     // may be null
  std::function<void(const Moment&, const Clock&)> run;  // may be empty
};

// The legacy stream of a device and the streams that are not non-blocking wait for each other: what either
// gets comes after all that the other has got.
enum class StreamKind : uint8_t { kNonBlocking, kBlocking, kLegacy };

struct Stream {
  size_t actor = 0;
  int device = 0;
  StreamKind kind = StreamKind::kNonBlocking;
  bool is_captured = false;
  std::shared_ptr<Record> last;  // of what it has got; null: nothing, or it is non-blocking
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
  // The next address and how many follow; the host cannot touch what is there, and none is used again.
  uint64_t next = 0;
  uint64_t reserved = 0;
  std::vector<bool> reaches;  // by device
  Stream* legacy = nullptr;
  std::map<std::thread::id, Stream*> of_threads;
};

// Of a copy in two dimensions, as cuda.h has it.
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

// What is wrong with the use of the machine.
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
  // What the program holds handles on, and may lose with a device.
  std::map<Event*, std::unique_ptr<Event>> events;
  std::map<Module*, std::unique_ptr<Module>> modules;
  bool can_reach_peers = true;

  void Seed(uint64_t seed);
  // Runs some of what can run, perhaps nothing.
  void Turn();
  // Runs one operation; false where none can run.
  bool Step();

  // What the host sees.
  void HostSees(const Record& record);

  uint64_t Allocate(Device* device, size_t bytes);  // 0: there is no room
  void* AllocatePinned(size_t bytes);               // null: there is no room
  bool Free(uint64_t address);
  Block* Find(uint64_t address);

  Stream* NewStream(int device, StreamKind kind);
  // The stream behind a handle that a program gives with that device's context: null and 1 are its legacy
  // stream, 2 is that of the thread.
  Stream* StreamOf(Stream* handle, Device* device);
  // Whether work that is given to the stream would become a part of a graph, or break its capture.
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

  // A stretch of memory that an operation uses; `device` is -1 where the reach of one does not matter.
  //   throws  Violation  it is none, or not within its reach; a race
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
  uint32_t steps_of_16_ = 4;  // of so many of 16 calls something runs
  Clock host_;
  std::vector<std::unique_ptr<Stream>> streams_;
  size_t actors_ = 1;
  std::map<uint64_t, std::unique_ptr<Block>> blocks_;  // by address
  std::vector<std::shared_ptr<PinnedUse>> pinned_uses_;
  uint32_t launch_ = 0;
};

}  // namespace tkv::fake
