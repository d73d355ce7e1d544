// Files and folders, with errors that name the file and the system call.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tkv/error.h"

namespace tkv::checkpoint {

// An open file; the destructor closes it.  Every call
//   throws  kResourceExhausted (no space, a quota, too many files), kFailedPrecondition (no
//           permission, a read-only file system, not a folder), kNotFound, kAlreadyExists,
//           kUnavailable (every other error of the system)
class File {
 public:
  // Creates a new file to write.
  //   shown  the name in errors, instead of the path
  static File Create(const std::string& path, const std::string& shown = {});
  static File Open(const std::string& path);  // to read
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  void Write(std::span<const std::byte> bytes);  // at the end
  void WriteAt(uint64_t offset, std::span<const std::byte> bytes);
  // Waits until the disk has the file's content.
  void Sync();
  void Close();
  uint64_t Size() const;
  // Fills `bytes` from the file.
  //   throws  kDataLoss  the file ends before that
  void ReadAt(uint64_t offset, std::span<std::byte> bytes) const;

 private:
  File(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_ = -1;
};

// A lock on a folder against other savers.  If this process dies, the system releases the lock when
// the processes that were forked from it meanwhile have ended, too.
class FolderLock {
 public:
  //   throws  kFailedPrecondition  another process, or another store of this process, has the lock
  explicit FolderLock(const std::string& path);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  int fd_ = -1;
};

// Checks a path of the user.  The system would end the path at a zero byte.
//   throws  kInvalidArgument  the path is empty or has a zero byte
void CheckPath(const std::string& path);
// Returns the folder that contains the file.
std::string FolderOf(const std::string& path);
//   throws  kNotFound  the folder for a new file does not exist
void CheckFolderOf(const std::string& path);

// Makes a folder and its parents; it may exist already.  New folders are durable if this user may
// read their parents.
void MakeFolder(const std::string& path);
void SyncFolder(const std::string& path);
// Renames a file or a folder.  Replaces an existing file or an existing empty folder.
//   throws  kFailedPrecondition  the target is a device, a pipe or a socket
void Rename(const std::string& from, const std::string& to);
void RemoveAll(const std::string& path);  // it need not exist
// Exists and IsFolder return false if the path does not exist.
//   throws  as File, if the system cannot tell: no permission to look
bool Exists(const std::string& path);
bool IsFolder(const std::string& path);
std::vector<std::string> Names(const std::string& folder);  // sorted

// For tests: sets a function that is called with the names of system calls, before each call of
// File, FolderLock, Rename and MakeFolder, and once in RemoveAll and Names.  The result is the
// errno with which the call fails, or 0.  With kHalf a write or read does only half of its work.
inline constexpr int kHalf = -1;
using Fault = std::function<int(const char* call)>;
void SetFault(Fault fault);

}  // namespace tkv::checkpoint
