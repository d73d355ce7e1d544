// A reference-counted block of memory and the operations that are still using it.
//
// This is the only hazard model of the library.  Every asynchronous operation registers with the
// storage of each array that it uses.  Code that reads, writes or exports the memory asks the
// storage first.

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

// The place of a block of memory: host memory, pinned host memory, or the memory of a device.
struct Memory {
  enum class Kind : uint8_t {
    kHost,
    kPinned,  // host memory that the device can access without the host's help
    kDevice,
  };
  Kind kind = Kind::kHost;
  int32_t index = 0;  // of the device; 0 for kHost

  bool operator==(const Memory&) const noexcept = default;
};

class DeviceBlock;
class DeviceLoan;

// The intended use of memory; kWrite includes reading.
enum class Access : uint8_t { kRead, kWrite };

// A reference-counted block of memory.  Thread-safe.  Nothing locks the bytes themselves; the
// functions below order the operations of this library.
class TKV_API Storage final {
  struct Private {};  // lets one allocation hold the object and its reference count

 public:
  // Allocates uninitialised memory.  Host memory is 64-byte aligned, and from 2 MiB on the system
  // is advised to use huge pages.  Earlier operations on device memory may still be running; the
  // next operation on the new storage waits for them.
  //   throws  kResourceExhausted  the system, or the device, has no such memory
  //           kUnimplemented      memory of a kind that this machine does not have
  //           kInvalidArgument, kUnavailable, kFailedPrecondition  as CheckUsable of a context
  static std::shared_ptr<Storage> Allocate(size_t bytes, Memory memory = {});

  // Wraps foreign memory: `foreign` is true.  The thread that drops the storage last also releases
  // `owner`.  If device memory is still in use then, a later call releases `owner` after the last
  // operation: the next that creates or drops such memory, or WaitAll.
  static std::shared_ptr<Storage> Adopt(void* data, size_t bytes, bool read_only,
                                        std::shared_ptr<const void> owner, Memory memory = {});
  Storage(Private, void* data, size_t bytes, bool owned, bool read_only,
          std::shared_ptr<const void> owner);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // An address in host or device memory.  Code that reads or writes the bytes itself uses HostData.
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

  // Marks the memory as exported to code that does not know the hazards (DLPack, buffer).  First
  // waits as a reader or a writer of this library would.  From then on every operation on the
  // storage completes before its call returns.
  //   blocks, throws  as WaitReadable, WaitWritable; then nothing is marked
  void MarkForeign(Access access, std::chrono::nanoseconds patience = kHazardPatience);
  // Marks device memory as exported to a receiver that continues on `stream`.  If possible, that
  // stream waits instead of the host.
  //   blocks, throws  as MarkForeign; also kUnavailable (the device is lost), and nothing is marked
  void ShareWith(Stream* stream, Access access,
                 std::chrono::nanoseconds patience = kHazardPatience);
  // Marks the memory as exported without a wait: its receiver itself waits for running operations.
  void ShareWithoutWaiting() noexcept { foreign_.store(true, std::memory_order_release); }
  // Returns true if the memory was exported or adopted.
  bool foreign() const noexcept { return foreign_.load(std::memory_order_acquire); }

  // Sets the stream, a CUstream, on which the owner of foreign device memory continues.  Later,
  // that stream waits for each operation on the memory, so that the host need not.  Call it before
  // the memory is used.
  void SetOwnerStream(uint64_t stream);
  // Returns null if none is known, or if it is the default stream of another thread.
  Stream* owner_stream() const noexcept;

  // Register an operation that continues after its call has returned.  Its Wait must not throw the
  // operation's failure, which only the ticket reports, because other users only wait for the
  // memory.
  //   AddReader returns false if the storage is foreign: then the operation has to complete, or to
  //   read from a copy, before its call returns.  On device memory it is registered nevertheless,
  //   until the device has read.  AddWriter registers in any case: the caller of an operation on a
  //   foreign storage has to wait for its end.
  bool AddReader(const std::shared_ptr<Pending>& reader);
  void AddWriter(const std::shared_ptr<Pending>& writer);
  // The same in two steps, for an operation on many arrays.  Enters registers it for WaitAll, once.
  // Enter registers it with one storage, and does not report if the storage is foreign.
  static void Enters(const std::shared_ptr<Pending>& operation);
  void Enter(const std::shared_ptr<Pending>& operation, Access access);
  // Wait until the memory can be used: readers wait for pending writers, writers also for pending
  // readers.  A child of fork() does not wait, because the operations are the parent's and use the
  // parent's memory.
  //   blocks  at most `patience` (by default 600 s) for each operation
  //   throws  kDeadlineExceeded, or the exception that interrupts a wait
  void WaitReadable(std::chrono::nanoseconds patience = kHazardPatience) {
    if (has_pending_.load(std::memory_order_acquire)) Wait(Access::kRead, patience);
  }
  void WaitWritable(std::chrono::nanoseconds patience = kHazardPatience) {
    if (has_pending_.load(std::memory_order_acquire)) Wait(Access::kWrite, patience);
  }
  // Returns true if WaitReadable or WaitWritable would block now.
  bool IsInUse(Access access) {
    return has_pending_.load(std::memory_order_acquire) && FindInTheWay(access);
  }
  // Makes later work of a stream wait for the operations that `access` conflicts with.
  //   returns  an operation for which only the host can wait; null: the stream waits for all
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
  Uses UsesNow();  // the operations that are not known to be done
  bool IsOrdered(const Stream* stream, Access access);  // needs no further wait
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
  std::atomic<bool> has_pending_{false};  // a hint that avoids the lock of an idle storage
  std::atomic<unsigned> uses_birth_;      // the process of `uses_`, as its ForkGeneration
  std::mutex mutex_;
  Uses uses_;
  std::unique_ptr<DeviceBlock> block_;  // from a device's cache; null: not from one
  std::unique_ptr<DeviceLoan> loan_;    // null: not adopted device memory
};

// Waits until no operation on any array of this process is running.
//   throws  as Storage::WaitReadable; also, after all others have ended and once per operation,
//           that the device of an operation is lost
TKV_API void WaitAll(std::chrono::nanoseconds patience = kHazardPatience);

}  // namespace tkv
