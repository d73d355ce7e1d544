// The keys of a store in the order of their creation, found by name.

#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "rows/row_table.h"
#include "tkv/key.h"
#include "tkv/ndarray.h"
#include "tkv/optimizer.h"
#include "tkv/stats.h"

namespace tkv {

struct Entry;
struct Updater;
using Entries = std::list<std::shared_ptr<Entry>>;

// The content of a key kept by rows; it replaces the value.
struct RowsKey {
  const Shape row_shape;
  const uint64_t row_count;  // ids are below it
  RowTable table;
  std::vector<double> scalars;  // scalar states of the optimizer that last updated the key
  // Has the key's own optimizer; null: the store's updater is used.
  std::shared_ptr<Updater> own = {};
  // Copies of the table's properties: other calls read them before they wait for the key, while the
  // table may be replaced.
  const DType dtype = table.dtype();
  const size_t row_bytes = table.row_bytes();
};

// A key of the store.  Owned by the table; a call that waits for a key shares the ownership.
struct Entry : std::enable_shared_from_this<Entry> {
  Entry(const KeyView& name, NDArray initial)
      : value(std::move(initial)), bytes(value.bytes()), key(name) {}
  Entry(const KeyView& name, RowsKey initial)
      : rows(std::make_unique<RowsKey>(std::move(initial))), bytes(0), key(name) {}

  bool by_rows() const { return rows != nullptr; }
  DType dtype() const { return by_rows() ? rows->dtype : value.dtype(); }

  // The use of the key and the counts of calls; protected by the store's mutex.
  int readers = 0;
  bool is_deleted = false;  // read by calls that were waiting for the key
  bool is_written = false;
  std::thread::id writer;
  uint64_t call = 0;           // number of the call that looked this entry up last
  size_t group = 0;            // index of this key in the entries of that call
  Entries::iterator place;     // position in the table
  uint64_t rounds = 0;         // calls that pushed the key and ended well
  uint64_t pushed_arrays = 0;  // user arrays, each as large as the value
  uint64_t pulled_arrays = 0;
  UserBytes of_rows;  // bytes of user arrays that are not whole values

  NDArray value;                  // never handed out: reads copy; empty if the key is kept by rows
  std::unique_ptr<RowsKey> rows;  // null: the key has a value
  const size_t bytes;             // bytes of the value; the same for every later value
  const Key key;
  std::optional<int32_t> home;  // the GPU that sums and updates the key if its call can run there

  // State of the optimizer that last updated this key; another optimizer starts with fresh states.
  std::shared_ptr<const Optimizer> state_of;
  std::vector<NDArray> states;
  NDArray master;
  uint64_t updates = 0;  // updates by this optimizer
  // Compression residuals (gradients not sent yet), one for each position in a push's list of
  // values.
  std::vector<std::vector<float>> residuals;

  KeyStats Stats() const {
    return {key,
            rounds,
            {bytes + of_rows.init_bytes, pushed_arrays * bytes + of_rows.pushed_bytes,
             pulled_arrays * bytes + of_rows.pulled_bytes}};
  }
};

// The keys of one store, in the order of creation and by name.
class KeyTable {
 public:
  Entry* Find(const KeyView& key) const;
  //   throws  kNotFound, kInvalidArgument
  Entry& Get(std::string_view verb, const KeyView& key) const;
  // Adds keys, which the table does not have.
  //   throws  std::bad_alloc; nothing has changed
  void Insert(std::span<const std::shared_ptr<Entry>> entries);
  void Erase(Entry* entry) noexcept;
  const Entries& entries() const { return entries_; }

 private:
  void AddName(Entry* entry);
  void RemoveName(const Entry& entry) noexcept;

  Entries entries_;
  boost::unordered_flat_map<int64_t, Entry*> by_number_;
  // The texts are those of the entries.
  boost::unordered_flat_map<std::string_view, Entry*, boost::hash<std::string_view>> by_text_;
};

}  // namespace tkv
