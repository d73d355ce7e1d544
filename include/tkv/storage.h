// A reference-counted block of memory and the operations that are still using it: the one hazard
// model of the library.  Every asynchronous use of an array registers with the array's storage;
// whoever reads, writes or exports the memory asks the storage first.

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tkv/api.h"
#include "tkv/pending.h"

namespace tkv {

// Where a block of memory lies.
struct Memory {
  enum class Kind : uint8_t {
    kHost,
    kPinned,  // the host's, where that device copies from and to without the host's help
    kDevice,
  };
  Kind kind = Kind::kHost;
  int32_t index = 0;  // of the device; of kHost 0

  bool operator==(const Memory&) const noexcept = default;
};

class DeviceBlock;
class DeviceLoan;

// What somebody is about to do with memory; writing includes reading.
enum class Access : uint8_t { kRead, kWrite };

// Thread-safe.  The bytes themselves are not guarded: the hazards below order the operations of
// this library.
class TKV_API Storage final {
  struct Private {};  // so that one allocation holds the object and its count

 public:
  // Uninitialised memory; of the host: 64-byte aligned, with huge pages advised from 2 MiB on.
  // What has used the memory of a device before may still be under way, and is in the way of whoever
  // uses it next.
  //   throws  kResourceExhausted  the system, or the device, has no such memory
  //           kUnimplemented      memory of a kind that this machine does not have
  //           kInvalidArgument, kUnavailable, kFailedPrecondition  as CheckUsable of a context
  static std::shared_ptr<Storage> Allocate(size_t bytes, Memory memory = {});

  // Memory of somebody else.  `owner` is released with the storage, on whichever thread drops it
  // last; of memory of a device when the last operation on it has ended, too, by a thread that makes
  // or drops such memory then or calls WaitAll.
  static std::shared_ptr<Storage> Adopt(void* data, size_t bytes, bool read_only,
                                        std::shared_ptr<const void> owner, Memory memory = {});
  Storage(Private, void* data, size_t bytes, bool owned, bool read_only,
          std::shared_ptr<const void> owner);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // An address of wherever the memory lies; whoever reads or writes there by itself takes HostData.
  void* data() const noexcept { return data_; }
  //   throws  kFailedPrecondition  the memory is not the host's
  void* HostData() const {
    CheckOfHost();
    return data_;
  }
  void CheckOfHost() const {
    if (memory_.kind == Memory::Kind::kDevice) ThrowNotOfHost();
  }
  Memory memory() const noexcept { return memory_; }
  size_t bytes() const noexcept { return bytes_; }
  bool read_only() const noexcept { return read_only_; }
  bool is_own() const noexcept { return owned_; }  // allocated here, not adopted

  // Exported to somebody who does not know the hazards (DLPack, buffer): waits as a reader or a
  // writer of this library would, and from then on every operation on the storage completes before
  // it returns.
  //   blocks, throws  as WaitReadable, WaitWritable; then nothing is marked
  void MarkForeign(Access access, std::chrono::nanoseconds patience = kHazardPatience);
  // The same of memory of a device for somebody who goes on with it on that stream, which waits in the
  // place of the host, where it can.
  void ShareWith(Stream* stream, Access access,
                 std::chrono::nanoseconds patience = kHazardPatience);
  // The same for somebody who looks after what is under way.
  void ShareWithoutWaiting() noexcept { foreign_.store(true, std::memory_order_release); }
  bool foreign() const noexcept { return foreign_.load(std::memory_order_acquire); }

  // Of memory of a device that is somebody else's, before it is used: the stream, a CUstream, on which
  // its owner goes on.  It waits for each operation on the memory then, and the host does not.
  void SetOwnerStream(uint64_t stream);
  Stream* owner_stream() const noexcept;  // null: nobody knows one, or it is another thread's

  // Registers an operation that goes on after its call has returned.  The Wait of what is given
  // here tells no failure of the operation (that is the ticket's): who waits for memory only wants
  // the memory.
  //   AddReader returns false where the storage is foreign: the operation has to complete, or to
  //   read from a copy, before its call returns.  Of memory of a device it is registered
  //   nevertheless, as long as the device reads.
  bool AddReader(const std::shared_ptr<Pending>& reader);
  void AddWriter(const std::shared_ptr<Pending>& writer);
  // The same of an operation on many arrays: Enters tells WaitAll of it, once, and Enter is for each.
  static void Enters(const std::shared_ptr<Pending>& operation);
  void Enter(const std::shared_ptr<Pending>& operation, Access access);
  // Reading waits for pending writers, writing for pending readers too.  In a child of fork() there
  // is nothing to wait for: the operations are the parent's, and work on the parent's memory.
  //   blocks  at most `patience` for each of them
  //   throws  kDeadlineExceeded, or what ends an interrupted wait
  void WaitReadable(std::chrono::nanoseconds patience = kHazardPatience) {
    if (has_pending_.load(std::memory_order_acquire)) Wait(Access::kRead, patience);
  }
  void WaitWritable(std::chrono::nanoseconds patience = kHazardPatience) {
    if (has_pending_.load(std::memory_order_acquire)) Wait(Access::kWrite, patience);
  }
  // Whether either would block now.
  bool IsInUse(Access access) {
    return has_pending_.load(std::memory_order_acquire) && FindInTheWay(access);
  }
  // Has work that a stream gets next wait for what is in its way.
  //   returns  an operation that only the host can wait for; null: the stream waits for all
  std::shared_ptr<Pending> Order(Stream* stream, Access access) {
    if (!has_pending_.load(std::memory_order_acquire)) return nullptr;
    return OrderPending(stream, access);
  }

 private:
  using Uses = std::vector<PendingUse>;

  static std::shared_ptr<Storage> AllocateByDevice(size_t bytes, Memory memory);
  static void ReleaseOwners();
  void ReturnLoan() noexcept;

  void Wait(Access access, std::chrono::nanoseconds patience);
  std::shared_ptr<Pending> OrderPending(Stream* stream, Access access);
  Uses UsesNow();
  bool IsOrdered(const Stream* stream, Access access);  // without a wait
  bool FindInTheWay(Access access);
  bool IsInTheWay(Access access) const;  // with the lock
  [[noreturn]] static void ThrowNotOfHost();
  bool Add(const std::shared_ptr<Pending>& operation, Access access);
  std::unique_lock<std::mutex> Lock();
  Uses TakeEnded();  // with the lock

  void* data_;
  size_t bytes_;
  Memory memory_;
  bool owned_;
  bool read_only_;
  std::shared_ptr<const void> owner_;
  std::atomic<bool> foreign_{false};
  std::atomic<bool> has_pending_{false};  // a hint, so that an idle storage costs no lock
  std::atomic<unsigned> uses_birth_;      // the process, counted in forks, that `uses_` are of
  std::mutex mutex_;
  Uses uses_;
  std::unique_ptr<DeviceBlock> block_;  // of the cache of a device; null: it is not of one
  std::unique_ptr<DeviceLoan> loan_;    // null: not of a device, or not adopted
};

// Waits until no operation on any array of this process is under way.
//   throws  as Storage::WaitReadable; that the device of an operation is lost, when all others have ended,
//           and once for each operation
TKV_API void WaitAll(std::chrono::nanoseconds patience = kHazardPatience);

}  // namespace tkv
