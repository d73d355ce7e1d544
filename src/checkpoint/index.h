// The index of a snapshot: a text in JSON with its keys, the files of their tensors, and checksums.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/saved_key.h"

namespace tkv::checkpoint {

inline constexpr uint64_t kIndexBytesMax = uint64_t{1} << 30;  // about two million keys

struct Index {
  std::vector<SavedKey> keys;
  Layout layout;
  std::vector<std::string> checks;         // of the tensors, in the order of layout.items
  std::vector<std::string> header_checks;  // of the files' headers
};

// Returns the text of an index.  Its first field is `check`, with kNoCheck.
std::string TextOfIndex(const Index& index, const std::function<std::string(size_t file)>& name_of);
// Returns the index with this text.
//   throws  kDataLoss            a text that no snapshot has; the message begins with `name`
//           kFailedPrecondition  a newer format
Index ParseIndex(const std::string& text, const std::string& name);
// Returns the index in a file of a folder, after a look at its check.
//   throws  kDataLoss            it is damaged
//           kFailedPrecondition  a newer format, or the index of another program
Index IndexOf(const std::string& text, const std::string& file);
// Refuses a name that this build could not read again, both when writing and when reading a
// snapshot of another build.
//   throws  kDataLoss
void CheckName(const SavedKey& key);

}  // namespace tkv::checkpoint
