// A request of a client's user, and its result.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "codec/codec.h"
#include "trace/span.h"
#include "wire/effects.h"
#include "wire/listed.h"

namespace tkv {

using OpId = uint64_t;  // grows with each operation of a client
inline constexpr OpId kNoOp = 0;

// The spans that a server has recorded: the result of an Operation::Trace.
struct Traced {
  static constexpr uint64_t kNewest = UINT64_MAX;  // `from`: no span that exists already
  struct Request {
    uint32_t server = 0;
    bool records = false;     // true: the server records from now on; false: it stops
    bool forgets = false;     // this client will not ask again for spans that the server keeps
    uint64_t from = kNewest;  // the number of the first wanted span
  };
  Request request;
  std::vector<Span> spans;
  uint64_t next = 0;  // the number of the span after these
  Time clock = 0;     // the server's time when it answered
  Time asked = 0;     // this process's time before that
  Time answered = 0;  // this process's time after it
};

// A page of the list of a server's keys: the result of an Operation::List.
struct Listing {
  struct Request {
    uint32_t server = 0;
    KeyId after;  // the last key of the page before; {}: none
  };
  Listed listed;
  KeyId last;  // of this page
  bool has_more = false;
};

// A request: fields that every kind has, and a variant with one type for each kind.
struct Operation {
  using Meta = std::shared_ptr<const KeyMeta>;
  // The states of a cut version, one for each chunk.
  using States = std::shared_ptr<const std::vector<ChunkState>>;

  // Creates a key (rank 0) or finds it (others).
  struct Init {
    Meta meta;
    codec::Contribution value;  // dense values, or encoded rows for a table
  };
  // Finds a key.
  struct Open {
    bool may_wait = true;  // for a key that does not exist yet
  };
  // The client reads the value until the push is accepted.
  struct Push {
    codec::Contribution value;  // in the encoding that it names
    std::optional<std::vector<double>> scalars;
    uint64_t rule = 0;  // with scalars: UpdateSpec::Digest of the worker's optimizer; 0: not given
    PushStep step;      // the training step
  };
  struct Pull {
    codec::Contribution ids;  // by rows: the wanted ids, divided among the buckets
    // Contiguous, in the key's dtype.  By rows: the rows of `ids`, in the order of `ids`.
    // Undefined if the operation fails.
    Block out;
  };
  struct PushPull {
    Push push;
    Pull pull;
  };
  // Ends when the round of this worker's last push of the key is complete.
  struct Wait {};
  struct Barrier {
    // The task that one worker does before the barrier.
    enum class Task : uint8_t {
      kNone,
      kDone,       // this worker has done it
      kOfAnother,  // another worker does it
      kBegins,     // the servers note that the job has begun
    };
    Task task = Task::kNone;
    // The error that every worker at the barrier gets.  With kOfAnother they get it only if no
    // worker at the barrier has done the task: a barrier completes without dead workers.
    std::optional<Error> failure;
  };
  // Changes the updater of all keys of the store.
  struct Control {
    UpdateSpec spec;
  };
  struct Delete {};
  // Closes the store: servers and client forget its keys.
  struct Close {};
  // Leaves the job.  No operation can follow.
  struct Leave {
    std::optional<Error> failure;  // the head then counts the worker as dead
  };
  // Waits like Wait, and has the servers keep that version, for Reads.
  struct Cut {};
  // Reads one part of a cut version.  Waits for no other operation.
  struct Read {
    Meta meta;
    States states;      // chunks that lack the part are not read
    uint64_t part = 0;  // see ChunkState
    // By rows, for arrays of rows: a range in the concatenated rows of all buckets.
    RowRange rows;
    // Its `out` receives the part.  With ids: only these rows, instead of the range.
    Pull pull;
  };
  // Has the servers free the cut versions of the store.
  struct Release {};
  // Counts the rows of a table.
  struct Stats {};
  // Asks for the base that RoundOf adds, after another rank's Restore.
  struct FindBase {};
  // Puts a cut version back, between two barriers.
  struct Restore {
    enum class Extent : uint8_t {
      kAll,
      kMore,       // by rows: adds to the rows that an earlier Restore has put back
      kOnlyRows,   // by rows: replaces only these rows
      kOnlyValue,  // dense: states, counts and rounds stay
    };
    // With kMore and kOnlyRows, buckets without rows and candidates in `states` are skipped.
    Extent extent = Extent::kAll;
    States states;
    codec::Contribution value;
    uint64_t round = 0;  // at which the value was cut
    PushStep step;       // of the last push
  };
  struct Trace {
    Traced::Request request;
  };
  struct List {
    Listing::Request request;
  };
  // Asks a server for the current meta of any key.
  struct Describe {
    bool with_rule = false;  // the meta's `own` says how the key is updated
  };
  // Ends when this client has the membership that the head has now: its newest EPOCH, or a later
  // one.
  struct NewestEpoch {};
  using Request = std::variant<Init, Open, Push, Pull, PushPull, Wait, Barrier, Control, Delete,
                               Close, Leave, Cut, Read, Release, Stats, FindBase, Restore, Trace,
                               List, Describe, NewestEpoch>;

  std::string verb;  // the first word of error messages
  std::string key;   // canonical; empty: the operation has no key
  // The store's number, in the order of create().  Only operations without a key need it.
  uint32_t store = 0;
  int priority = 0;   // queued messages for a server leave in this order, the highest first
  Time patience = 0;  // 0: the client's
  Request request;

  // Returns true if the request has one of these types.
  template <typename... Kinds>
  bool Is() const {
    return (std::holds_alternative<Kinds>(request) || ...);
  }
  // Returns the request, or null if it has another type.
  template <typename T>
  const T* As() const {
    return std::get_if<T>(&request);
  }
  // Returns the part that a Push and a PushPull have, or null.
  const Push* push() const;
  // Returns the part that a Pull, a PushPull and a Read have, or null.
  const Pull* pull() const;
  // Returns the values that the operation sends, or null if it has none.
  const codec::Contribution* value() const;
  codec::Contribution* value() {
    return const_cast<codec::Contribution*>(std::as_const(*this).value());
  }
};

// An event of an operation.  kDone and kFailed end it.
struct Outcome {
  enum class Event : uint8_t {
    // A push or a barrier: the servers have it, exactly once, and the user may change the value.
    // The end follows.
    kAccepted,
    kDone,
    kFailed,
  };
  // The result of an Init, an Open and a Describe.
  struct Found {
    Operation::Meta meta;
  };
  // The result of a Cut.
  struct Cut {
    Operation::Meta meta;
    Operation::States states;
  };
  using Result = std::variant<std::monostate, Found, Cut, std::shared_ptr<const Traced>,
                              std::shared_ptr<const Listing>, TableStats>;
  OpId op = kNoOp;
  Event event{};
  std::optional<Error> error;
  // A push has its round, a pull the version, a delete the round of the last push, and
  // a NewestEpoch the number of the EPOCH.
  uint64_t round = 0;
  Result result;  // of kDone

  // Returns the result, or null if it has another type.
  template <typename T>
  const T* As() const {
    return std::get_if<T>(&result);
  }
};

}  // namespace tkv
