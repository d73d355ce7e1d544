#include "base/arena.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/format.h"
#include "base/round_up.h"
#include "base/without_write_signals.h"

namespace tkv {
namespace {

// The step in which memory is taken from the system.
constexpr size_t kStep = size_t{16} << 20;
// The size of the pieces in which free memory at the end is returned to the system.
constexpr size_t kTrim = size_t{256} << 20;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

size_t MemoryOfMachine() {
  const auto pages = static_cast<size_t>(sysconf(_SC_PHYS_PAGES));
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return RoundUp(pages * page, kStep);
}

// Returns the size of the file: the memory of the machine, or less if limits of the process demand
// it.
size_t SizeOfFile() {
  size_t size = MemoryOfMachine();
  for (const auto which : {RLIMIT_FSIZE, RLIMIT_AS}) {
    rlimit limit{};
    if (getrlimit(which, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    // Most of the address space stays free for other uses of the process.
    const size_t part = which == RLIMIT_AS ? 4 : 1;
    size = std::min(size, static_cast<size_t>(limit.rlim_cur) / part / kStep * kStep);
  }
  return size;
}

}  // namespace

std::shared_ptr<Arena> Arena::Open(std::string* why) {
  std::shared_ptr<Arena> arena(new Arena);
  const auto failed = [&](const char* what) {
    *why = Format("{}: {}", what, std::strerror(errno));
    return std::shared_ptr<Arena>();
  };
  arena->size_ = SizeOfFile();
  if (arena->size_ == 0) {
    *why = "the limit on the size of files is too low";
    return {};
  }
  arena->file_ = memfd_create("tensorkv", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (arena->file_ < 0) return failed("memfd_create");
  if (ftruncate(arena->file_, static_cast<off_t>(arena->size_)) != 0) return failed("ftruncate");
  if (fcntl(arena->file_, F_ADD_SEALS, kSeals) != 0) return failed("seal");
  const std::string path = Format("/proc/self/fd/{}", arena->file_);
  arena->reader_file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (arena->reader_file_ < 0) return failed(path.c_str());
  void* const base = mmap(nullptr, arena->size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                          arena->file_, 0);
  if (base == MAP_FAILED) return failed("mmap");
  arena->base_ = static_cast<std::byte*>(base);
  madvise(base, arena->size_, MADV_DONTFORK);
  madvise(base, arena->size_, MADV_DONTDUMP);
  return arena;
}

Arena::~Arena() {
  // A forked child does not have the mapping, and may have another one at this address.
  if (base_ != nullptr && birth_ == ForkGeneration()) munmap(base_, size_);
  if (reader_file_ >= 0) close(reader_file_);
  if (file_ >= 0) close(file_);
}

// Takes the memory from the system now: a first touch that finds no memory would kill the process
// (SIGBUS).
//   returns  the free run that contains the new memory; the end if the system has no memory left
Arena::Runs::iterator Arena::Extend(size_t end) {
  end = std::min(RoundUp(end, kStep), size_);
  const WithoutWriteSignals guard;
  int result = 0;
  do {
    result = fallocate(file_, 0, static_cast<off_t>(backed_), static_cast<off_t>(end - backed_));
  } while (result != 0 && errno == EINTR);
  if (result != 0) return free_.end();
  const size_t begin = std::exchange(backed_, end);
  return Insert(begin, end - begin);
}

Block Arena::Allocate(size_t bytes) {
  if (bytes == 0 || bytes > kBlockBytesMax || bytes > size_) return {};
  const size_t size = RoundUp(bytes, kPage);
  std::unique_lock lock(mutex_);
  auto found =
      std::find_if(free_.begin(), free_.end(), [&](const auto& run) { return run.second >= size; });
  if (found == free_.end()) {
    const bool ends_free =
        !free_.empty() && free_.rbegin()->first + free_.rbegin()->second == backed_;
    const size_t begin = ends_free ? free_.rbegin()->first : backed_;
    if (size > size_ - begin) return {};
    found = Extend(begin + size);
    if (found == free_.end() || found->second < size) return {};
  }
  const size_t offset = found->first;
  const size_t rest = found->second - size;
  free_.erase(found);
  if (rest > 0) free_.emplace(offset + size, rest);
  // If the owner below cannot be allocated, its deleter frees the block at once and takes the lock.
  lock.unlock();
  return {base_ + offset, bytes,
          std::shared_ptr<void>(base_ + offset, [self = shared_from_this(), offset, size](void*) {
            std::lock_guard guard(self->mutex_);
            self->Free(offset, size);
          })};
}

// Adds unused memory to the free runs and joins it with its free neighbours.
//   returns  the run that contains it; the end if the process has no memory for the entry, and the
//            range is then never used again
Arena::Runs::iterator Arena::Insert(size_t offset, size_t bytes) noexcept {
  auto after = free_.lower_bound(offset);
  if (after != free_.end() && offset + bytes == after->first) {
    bytes += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return before;
    }
  }
  try {
    return free_.emplace_hint(after, offset, bytes);
  } catch (const std::bad_alloc&) {
    return free_.end();
  }
}

// Marks a range as free.  Call with the lock.
// If the last kTrim bytes are free, they are returned to the system: at most that many for each
// freed block, so that no caller is delayed for long.
void Arena::Free(size_t offset, size_t bytes) noexcept {
  const auto run = Insert(offset, bytes);
  if (run == free_.end() || run->first + run->second != backed_ || run->second < kTrim) return;
  const size_t begin = backed_ - kTrim;
  const int how = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  if (fallocate(file_, how, static_cast<off_t>(begin), static_cast<off_t>(kTrim)) != 0) return;
  backed_ = begin;
  run->second -= kTrim;
  if (run->second == 0) free_.erase(run);
}

namespace {

// Returns true if the file has ordinary pages, which come from all free memory of the machine.
// Huge pages have a pool of their own: a read that finds the pool empty kills the reading process.
bool HasOrdinaryPages(int file) {
  struct statfs system{};
  return fstatfs(file, &system) == 0 && system.f_type == TMPFS_MAGIC &&
         system.f_bsize == sysconf(_SC_PAGESIZE);
}

}  // namespace

std::unique_ptr<ArenaView> ArenaView::Map(int file, std::string* why) {
  std::unique_ptr<ArenaView> view;
  try {
    view.reset(new ArenaView);
  } catch (const std::bad_alloc&) {
    close(file);
    throw;
  }
  view->file_ = file;
  const int seals = fcntl(file, F_GET_SEALS);
  struct stat status{};
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(file, &status) != 0 ||
      status.st_size <= 0) {
    throw Fail(Code::kInvalidArgument, "shared memory: the peer's file is not sealed");
  }
  if (!HasOrdinaryPages(file)) {
    throw Fail(Code::kInvalidArgument,
               "shared memory: the peer's file is not one of ordinary pages, of which the system "
               "has some when they are read");
  }
  const auto size = static_cast<size_t>(status.st_size);
  // Each view occupies address space, which a process has only so much of.
  if (size > MemoryOfMachine()) {
    throw Fail(Code::kInvalidArgument, "shared memory: a file of {} bytes, the machine has {}",
               size, MemoryOfMachine());
  }
  void* const base = mmap(nullptr, size, PROT_READ, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (base == MAP_FAILED) {
    *why = Format("mmap of {} bytes: {}", size, std::strerror(errno));
    return nullptr;
  }
  madvise(base, size, MADV_DONTFORK);
  madvise(base, size, MADV_DONTDUMP);
  view->base_ = static_cast<const std::byte*>(base);
  view->size_ = size;
  return view;
}

ArenaView::~ArenaView() {
  if (base_ != nullptr && birth_ == ForkGeneration()) munmap(const_cast<std::byte*>(base_), size_);
  if (file_ >= 0) close(file_);
}

// Returns true if all pages of the range have memory.
// Asks the kernel which pages are resident, at a few nanoseconds a page.  A page that is not
// resident may be on a swap device, so the file is asked for holes before the answer is false.
bool ArenaView::HasMemory(size_t offset, size_t bytes) const {
  constexpr size_t kPagesAtOnce = 1024;
  const size_t end = offset + bytes;
  for (size_t at = offset / kPage * kPage; at < end; at += kPagesAtOnce * kPage) {
    const size_t part = std::min(end - at, kPagesAtOnce * kPage);
    unsigned char pages[kPagesAtOnce];
    const auto last = pages + RoundUp(part, kPage) / kPage;
    const bool is_told = mincore(const_cast<std::byte*>(base_) + at, part, pages) == 0;
    if (is_told && std::all_of(pages, last, [](unsigned char page) { return (page & 1) != 0; })) {
      continue;
    }
    const off_t hole = lseek(file_, static_cast<off_t>(at), SEEK_HOLE);
    if (hole < 0 || static_cast<size_t>(hole) < at + part) return false;
  }
  return true;
}

const std::byte* ArenaView::At(uint64_t offset, uint64_t bytes) const {
  if (bytes > size_ || offset > size_ - bytes) {
    throw Fail(Code::kInvalidArgument, "shared memory: {} bytes at {}, there are {}", bytes, offset,
               size_);
  }
  if (!HasMemory(offset, bytes)) {
    throw Fail(Code::kInvalidArgument,
               "shared memory: {} bytes at {} of the peer's file, where it has written nothing",
               bytes, offset);
  }
  return base_ + offset;
}

}  // namespace tkv
