// The index of a snapshot: a text in JSON with its keys, the files of their tensors, and checksums.

#pragma once

#include <functional>
#include <map>
#include <set>
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
// Returns the numbers of the stores whose keys an index has.
std::set<uint32_t> StoresOf(const Index& index);

// Returns the metadata of all files.  Readers of other programs refuse files whose metadata does
// not name a format; "pt" is the one that all of them take.
std::map<std::string, std::string> FileMetadata();
// The index of a file of states is in its metadata.
inline constexpr const char* kIndexField = "tensorkv";

// Returns the text of an index.  Its first field is `check`, with kNoCheck, as are the checks that
// the index does not have yet.  All checks have the same length.
//   name_of  returns the name of a file; a file of states has none
std::string TextOfIndex(const Index& index, const std::function<std::string(size_t file)>& name_of);
// Returns the index with this text.
//   throws  kDataLoss            a text that no snapshot has; the message begins with `name`
//           kFailedPrecondition  a newer format
Index ParseIndex(const std::string& text, const std::string& name);
// Returns the index in a file of a folder, after a look at its check.
//   throws  kDataLoss            it is damaged
//           kFailedPrecondition  a newer format, or the index of another program
Index IndexOf(const std::string& text, const std::string& file);

}  // namespace tkv::checkpoint
