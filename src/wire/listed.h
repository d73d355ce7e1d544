// The reply to LIST: a server's keys, workers and memory, for observers and tools.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wire/message.h"

namespace tkv {

// A page of one server's keys, ascending by their ids: as many as fit into a message.
struct Listed {  // LISTED
  // A key and its chunks on this server.  `base` and the fields from `open_for` on describe the
  // chunk with the oldest version.
  struct Item {
    static constexpr size_t kMissingMax = 16;

    KeyMeta meta;            // without the key's own optimizer
    bool has_own = false;    // the key has its own optimizer
    bool has_first = false;  // chunk 0 is here; a key exists once its chunk 0 does
    uint32_t chunks = 0;     // number of chunks on this server
    uint64_t bytes = 0;      // memory of their values
    uint64_t oldest = 0;     // oldest version of these chunks
    uint64_t newest = 0;
    uint64_t base = 0;               // as in ChunkStatus
    uint64_t waiting = 0;            // number of waiting pulls
    uint64_t open_for = 0;           // ns since the first push of the next round; 0: no push yet
    uint32_t missing_count = 0;      // members that have not pushed it, once one has
    std::vector<Rank> missing = {};  // the first kMissingMax of them
    bool operator==(const Item&) const = default;
  };
  // The pushes of one incarnation of a worker to this server.
  struct Pushed {
    Rank rank = kNoRank;
    uint64_t incarnation = 0;
    uint64_t pushes = 0;
    uint64_t bytes = 0;
    bool operator==(const Pushed&) const = default;
  };
  // Memory of the server in bytes, by purpose.
  struct Memory {
    uint64_t values = 0, state = 0, sums = 0, held = 0;
    uint64_t cuts = 0;  // blocks that only cuts hold
    uint64_t rows = 0;  // tables of keys by rows
    bool operator==(const Memory&) const = default;
  };

  uint64_t observers = 0;
  Memory memory;
  std::vector<Pushed> workers;  // only in the first page
  std::vector<Item> items;
  bool operator==(const Listed&) const = default;
};

std::string Encode(const Listed::Item& value);
// Encodes a page.  `items` are already encoded and concatenated; value.items is ignored.
std::string Encode(const Listed& value, uint32_t item_count, std::string_view items);
//   throws  kInvalidArgument  the bytes are not one complete payload within its bounds
Listed DecodeListed(std::string_view bytes);

}  // namespace tkv
