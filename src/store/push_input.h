// The input of one push of a store of one process.

#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "store/claim.h"
#include "store/gather.h"
#include "store/local_rows.h"

namespace tkv {

// The claimed keys of a push, and the arrays and rows that the call brings for them.
struct PushInput {
  const Claim& claim;
  size_t count = 0;  // pushed keys; the keys that only have outputs follow them
  Sources sources = {};
  RowSums rows = {};                 // summed rows by key; empty: the call brings none
  const Outputs* outputs = nullptr;  // written by the jobs of the push; null: by the pull

  std::span<Entry* const> entries() const { return {claim.entries.data(), count}; }
};

// Throws kInvalidArgument: the key's dtype cannot be summed or updated.
[[noreturn]] void RefuseSum(std::string_view verb, const Entry& entry);
//   values  number of values that are summed; SIZE_MAX: an optimizer updates the key
//   throws  kInvalidArgument  the key's dtype cannot be summed, and there is more than one value
inline void CheckSum(std::string_view verb, const Entry& entry, size_t values) {
  if (values > 1 && !IsArithmetic(entry.dtype())) RefuseSum(verb, entry);
}

}  // namespace tkv
