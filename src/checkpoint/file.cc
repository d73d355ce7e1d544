#include "checkpoint/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/format.h"
#include "base/process.h"
#include "base/without_write_signals.h"

namespace tkv::checkpoint {
namespace {

Fault& TheFault() {
  static Fault fault;
  return fault;
}

// Returns 0, kHalf, or the errno with which a test lets this call fail.
int FaultOf(const char* call) { return TheFault() ? TheFault()(call) : 0; }

Error Failed(const std::string& path, const char* call, int error) {
  const std::string why = SystemText({error, std::generic_category()});
  return {CodeOfSystemError(error), Format("{}: {}: {}", path, call, why), error};
}

// Makes a system call and returns its result; throws on an error.  A call that a test lets fail is
// not made.
template <typename F>
auto Do(const std::string& path, const char* call, F f) {
  for (;;) {
    const int fault = FaultOf(call);
    if (fault > 0) throw Failed(path, call, fault);
    const WithoutWriteSignals guard;
    const auto result = f(fault == kHalf);
    if (result >= 0) return result;
    if (errno != EINTR) throw Failed(path, call, errno);
  }
}

// The most bytes of one system call; signals are handled in between.
constexpr size_t kWriteMax = size_t{16} << 20;

size_t Part(size_t left, bool half) {
  const size_t part = std::min(left, kWriteMax);
  return half ? std::max<size_t>(1, part / 2) : part;
}

// Returns the names in a folder, in any order.  Without memory std::filesystem's iterator ends the
// process.
std::vector<std::string> NamesIn(const std::string& folder) {
  struct Closes {
    void operator()(DIR* open) const { closedir(open); }
  };
  const std::unique_ptr<DIR, Closes> open(opendir(folder.c_str()));
  if (open == nullptr) throw Failed(folder, "opendir", errno);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* const entry = readdir(open.get());
    if (entry == nullptr) break;
    const std::string_view name = static_cast<const char*>(entry->d_name);
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) throw Failed(folder, "readdir", errno);
  return names;
}

// Returns the mode of the file or folder to which a path leads; none if there is none.
std::optional<mode_t> ModeOf(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) == 0) return status.st_mode;
  if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
  throw Failed(path, "stat", errno);
}

// Removes a file, or a folder with its content.  Removes a link, and not the link's target.
void RemoveTree(const std::string& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT || errno == ENOTDIR) return;
  if (errno != EISDIR && errno != EPERM) throw Failed(path, "unlink", errno);
  for (const std::string& name : NamesIn(path)) RemoveTree(Format("{}/{}", path, name));
  if (rmdir(path.c_str()) != 0 && errno != ENOENT) throw Failed(path, "rmdir", errno);
}

}  // namespace

void SetFault(Fault fault) { TheFault() = std::move(fault); }

File File::Create(const std::string& path, const std::string& shown) {
  std::string name = shown.empty() ? path : shown;  // copied before there is a file
  const int fd = Do(name, "open", [&](bool) {
    return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  });
  return {std::move(name), fd};
}

File File::Open(const std::string& path) {
  std::string name = path;
  const int fd = Do(path, "open", [&](bool) { return open(path.c_str(), O_RDONLY | O_CLOEXEC); });
  return {std::move(name), fd};
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) close(fd_);
}

void File::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto written = Do(path_, "write", [&](bool half) {
      return write(fd_, bytes.data(), Part(bytes.size(), half));
    });
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void File::WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto written = Do(path_, "pwrite", [&](bool half) {
      return pwrite(fd_, bytes.data(), Part(bytes.size(), half), static_cast<off_t>(offset));
    });
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
}

void File::Sync() {
  Do(path_, "fsync", [&](bool) { return fsync(fd_); });
}

void File::Close() {
  const int fd = std::exchange(fd_, -1);
  const int fault = FaultOf("close");
  const int result = close(fd);  // the descriptor is closed even if the call fails
  if (fault > 0) throw Failed(path_, "close", fault);
  if (result < 0 && errno != EINTR) throw Failed(path_, "close", errno);
}

uint64_t File::Size() const {
  struct stat status{};
  Do(path_, "fstat", [&](bool) { return fstat(fd_, &status); });
  return static_cast<uint64_t>(status.st_size);
}

void File::ReadAt(uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const auto read = Do(path_, "pread", [&](bool half) {
      return pread(fd_, bytes.data(), Part(bytes.size(), half), static_cast<off_t>(offset));
    });
    if (read == 0) {
      throw Fail(Code::kDataLoss, "{}: the file ends at byte {}, {} more are missing", path_,
                 offset, bytes.size());
    }
    bytes = bytes.subspan(static_cast<size_t>(read));
    offset += static_cast<uint64_t>(read);
  }
}

FolderLock::FolderLock(const std::string& path) {
  fd_ = Do(path, "open",
           [&](bool) { return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  const int fault = FaultOf("flock");
  if (fault <= 0 && flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = fault > 0 ? fault : errno;
  close(fd_);
  if (error == EWOULDBLOCK) {
    throw Fail(Code::kFailedPrecondition, "{}: another store is saving there", path);
  }
  throw Failed(path, "flock", error);
}

// Unlocks explicitly: a process that was forked meanwhile has the file open too, and would
// otherwise keep the lock.
FolderLock::~FolderLock() {
  flock(fd_, LOCK_UN);
  close(fd_);
}

void CheckPath(const std::string& path) {
  if (path.empty()) throw Fail(Code::kInvalidArgument, "the path is empty");
  if (path.find('\0') != std::string::npos) {
    throw Fail(Code::kInvalidArgument, "the path '{}' goes on behind a zero byte", path.c_str());
  }
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

void CheckFolderOf(const std::string& path) {
  const std::string folder = FolderOf(path);
  if (Exists(folder)) return;
  throw Error(Code::kNotFound, Format("{}: there is no folder {}", path, folder), ENOENT);
}

void MakeFolder(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty() && !Exists(parent)) MakeFolder(parent);
  const int fault = FaultOf("mkdir");
  if (fault > 0) throw Failed(path, "mkdir", fault);
  if (mkdir(path.c_str(), 0777) == 0) {
    try {
      SyncFolder(FolderOf(path));
    } catch (const Error& error) {
      // A user may make folders in a folder that only others may read.
      if (error.code() != Code::kFailedPrecondition) throw;
    }
    return;
  }
  const int error = errno;
  if (error == ENOENT) {  // kNotFound would name a missing key
    throw Error(Code::kFailedPrecondition, Format("{}: no folder can be made there", path), error);
  }
  if (error != EEXIST || !IsFolder(path)) throw Failed(path, "mkdir", error);
}

void SyncFolder(const std::string& path) {
  File folder = File::Open(path);
  folder.Sync();
  folder.Close();
}

void Rename(const std::string& from, const std::string& to) {
  std::error_code error;
  const auto kind = std::filesystem::status(to, error).type();
  using Kind = std::filesystem::file_type;
  // An error of `status` is also one of the rename, which names its cause.
  if (!error && kind != Kind::not_found && kind != Kind::regular && kind != Kind::directory) {
    throw Fail(Code::kFailedPrecondition,
               "{}: there is something else than a file or a folder, which is left as it is", to);
  }
  Do(to, "rename", [&](bool) { return rename(from.c_str(), to.c_str()); });
}

void RemoveAll(const std::string& path) {
  const int fault = FaultOf("unlink");
  if (fault > 0) throw Failed(path, "unlink", fault);
  RemoveTree(path);
}

bool Exists(const std::string& path) { return ModeOf(path).has_value(); }

bool IsFolder(const std::string& path) {
  const auto mode = ModeOf(path);
  return mode && S_ISDIR(*mode);
}

std::vector<std::string> Names(const std::string& folder) {
  const int fault = FaultOf("opendir");
  if (fault > 0) throw Failed(folder, "opendir", fault);
  std::vector<std::string> names = NamesIn(folder);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tkv::checkpoint
