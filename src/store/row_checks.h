// Looks at the arguments of calls that carry rows before anything changes, for every kind of store.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tkv/kvstore.h"

namespace tkv {

// Everything but whether the key is new, and whether ids stand twice.
//   throws  kInvalidArgument, kOutOfRange (an id)
void CheckRowsInit(std::string_view verb, const RowsInitItem& item);
// Shapes and dtypes of a key by rows; ids are looked at when they can be read.
//   throws  kInvalidArgument
void CheckRowsPush(std::string_view verb, const RowsPushItem& item, const KVStore::KeyInfo& info);
void CheckRowsPull(std::string_view verb, const RowsPullItem& item, const KVStore::KeyInfo& info);
//   throws  kOutOfRange  naming the id and its position
void CheckRowIds(std::string_view verb, const KeyView& key, std::span<const int64_t> ids,
                 uint64_t row_count);
// Of one key in one call.
//   throws  kInvalidArgument  2^32 rows and more
void CheckRowTotal(std::string_view verb, const KeyView& key, size_t rows);

}  // namespace tkv
