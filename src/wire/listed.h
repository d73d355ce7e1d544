// What a server says of its keys and workers to those who look.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wire/message.h"

namespace tkv {

// Keys of one server, ascending by their ids, as many as fit into a message.
struct Listed {  // LISTED
  // What this server has of a key.  Its last three fields are of the chunk that is behind the others.
  struct Item {
    static constexpr size_t kMissingMax = 16;

    KeyMeta meta;            // without the key's own optimizer
    bool has_own = false;    // there is one
    bool has_first = false;  // chunk 0: without it the key is not there yet
    uint32_t chunks = 0;     // here
    uint64_t bytes = 0;      // of their values
    uint64_t oldest = 0;     // version of those chunks
    uint64_t newest = 0;
    uint64_t base = 0;           // as of a ChunkStatus
    uint64_t waiting = 0;        // pulls that wait
    uint64_t open_for = 0;       // ns since the first push of its next round has come; 0: none has
    uint32_t missing_count = 0;  // members that have not pushed it, where one has
    std::vector<Rank> missing = {};  // of them the first ones
    bool operator==(const Item&) const = default;
  };
  // What a life of a worker has pushed to this server.
  struct Pushed {
    Rank rank = kNoRank;
    uint64_t incarnation = 0;
    uint64_t pushes = 0;
    uint64_t bytes = 0;
    bool operator==(const Pushed&) const = default;
  };
  // Bytes.
  struct Memory {
    uint64_t values = 0, state = 0, sums = 0, held = 0;
    uint64_t cuts = 0;  // beyond the others
    uint64_t rows = 0;  // tables, of memory of their own
    bool operator==(const Memory&) const = default;
  };

  uint64_t observers = 0;
  Memory memory;
  std::vector<Pushed> workers;  // with the first keys alone
  std::vector<Item> items;
  bool operator==(const Listed&) const = default;
};

std::string Encode(const Listed::Item& value);
// `items` are encoded, one behind the other.
std::string Encode(const Listed& value, uint32_t item_count, std::string_view items);
//   throws  kInvalidArgument  the bytes are not such a payload, whole and within its bounds
Listed DecodeListed(std::string_view bytes);

}  // namespace tkv
