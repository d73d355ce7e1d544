// Files and folders, with errors that name the file and the call.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tkv/error.h"

namespace tkv::checkpoint {

// An open file; closed with the object.  Every call
//   throws  kResourceExhausted (no space, a quota, too many files), kFailedPrecondition (no
//           permission, a read-only file system, not a folder), kNotFound, kAlreadyExists,
//           kUnavailable (everything else that the system says)
class File {
 public:
  // One that is not there.
  //   shown  in errors, in the place of the path
  static File Create(const std::string& path, const std::string& shown = {});
  static File Open(const std::string& path);  // to read
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  void Write(std::span<const std::byte> bytes);  // at the end
  void WriteAt(uint64_t offset, std::span<const std::byte> bytes);
  // Until the disk has it.
  void Sync();
  void Close();
  uint64_t Size() const;
  //   throws  kDataLoss  the file ends before
  void ReadAt(uint64_t offset, std::span<std::byte> bytes) const;

 private:
  File(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_ = -1;
};

// A folder that no other process may write to meanwhile; a process that ends gives it up.
class FolderLock {
 public:
  //   throws  kFailedPrecondition  another process, or another store of this one, has it
  explicit FolderLock(const std::string& path);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  int fd_ = -1;
};

// For a path of the user's, which the system would take up to its first zero byte.
//   throws  kInvalidArgument  it is empty, or has a zero byte
void CheckPath(const std::string& path);
// The folder that has the file.
std::string FolderOf(const std::string& path);
//   throws  kNotFound  the folder for a file that is to be made is not there
void CheckFolderOf(const std::string& path);

void MakeFolder(const std::string& path);  // parents too; one that is there is fine
void SyncFolder(const std::string& path);
// Takes the place of a file or a folder that is there.
//   throws  kFailedPrecondition  a device, a pipe or a socket is there
void Rename(const std::string& from, const std::string& to);
void RemoveAll(const std::string& path);  // that may not be there
bool Exists(const std::string& path);
bool IsFolder(const std::string& path);
std::vector<std::string> Names(const std::string& folder);  // sorted

// For tests: called before each system call that changes or reads a file, with its name; what it
// returns is the call's errno, or 0.  kHalf lets a write or read do half of its work.
inline constexpr int kHalf = -1;
using Fault = std::function<int(const char* call)>;
void SetFault(Fault fault);

}  // namespace tkv::checkpoint
