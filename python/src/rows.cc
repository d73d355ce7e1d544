// Verbs of tensorkv._core.Store for row keys. tensorkv/_store/row_verbs.py calls them with lists.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "batch.h"
#include "store.h"

namespace tkv::python {
namespace {

// Lists of ids and of matching values for each key.
class RowsBatch {
 public:
  RowsBatch(const std::string& verb, nb::handle key, nb::handle ids, nb::handle values)
      : keys_(verb.c_str(), key), ids_(keys_, ids, Use::kRead), values_(keys_, values, Use::kRead) {
    for (size_t i = 0; i < keys_.size(); ++i) {
      const auto ids_of_key = ids_.Arrays(i);
      const auto values_of_key = values_.Arrays(i);
      if (ids_of_key.size() != values_of_key.size()) {
        throw Fail(Code::kInvalidArgument, "{} {}: {} arrays of ids and {} of values", verb,
                   keys_[i].ToString(), ids_of_key.size(), values_of_key.size());
      }
      for (size_t j = 0; j < ids_of_key.size(); ++j) {
        rows_.push_back({*ids_of_key[j], *values_of_key[j]});
      }
      ends_.push_back(rows_.size());
    }
    for (const Rows& rows : rows_) pointers_.push_back(&rows);
  }
  RowsBatch(const RowsBatch&) = delete;
  RowsBatch& operator=(const RowsBatch&) = delete;

  const Keys& keys() const { return keys_; }
  std::span<const Rows* const> Values(size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return {pointers_.data() + begin, ends_[i] - begin};
  }
  std::vector<RowsPushItem> PushItems(int priority) const {
    std::vector<RowsPushItem> items;
    for (size_t i = 0; i < keys_.size(); ++i) items.push_back({keys_[i], Values(i), priority});
    return items;
  }

 private:
  const Keys keys_;
  const Batch ids_;
  const Batch values_;
  std::vector<size_t> ends_;
  std::vector<Rows> rows_;
  std::vector<const Rows*> pointers_;
};

// The form of a table that init_table makes.
struct TableForm {
  std::vector<int64_t> row_shape;
  std::string dtype;
  uint64_t row_count;
  RowInitializer initializer;
  RowPolicy policy;
};

// Returns the value of an enum whose values have these names, in their order.
template <typename E>
E ValueOf(const char* what, const std::string& name, std::initializer_list<const char*> names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw Fail(Code::kInvalidArgument, "there is no {} '{}'", what, name);
  return static_cast<E>(found - names.begin());
}

RowsInitItem InitItemOf(const KeyView& key, const TableForm& form, std::string_view mode) {
  RowsInitItem item{.key = key,
                    .row_shape = Shape(std::span<const int64_t>(form.row_shape)),
                    .dtype = ParseDType(form.dtype),
                    .row_count = form.row_count,
                    .initializer = form.initializer,
                    .policy = form.policy};
  item.mode = mode;
  return item;
}

// Creates keys.  A key without a form is a plain key, and its value is in its list of `whole`.
void InitRows(Store& self, const std::string& verb, nb::handle keys,
              const std::vector<std::optional<TableForm>>& forms, nb::handle ids, nb::handle values,
              nb::handle whole, const std::string& mode, const PyOptimizer* optimizer) {
  const RowsBatch batch(verb, keys, ids, values);
  const Batch whole_batch(batch.keys(), whole, Use::kRead);
  std::vector<RowsInitItem> items;
  for (size_t i = 0; i < batch.keys().size(); ++i) {
    const KeyView key = batch.keys()[i];
    if (!forms.at(i)) {
      items.push_back({.key = key, .mode = mode});
      items.back().value = whole_batch.Arrays(i)[0];
      continue;
    }
    try {
      items.push_back(InitItemOf(key, *forms[i], mode));
    } catch (const Error& error) {
      throw Fail(error.code(), "{} {}: {}", verb, key.ToString(), error.what());
    }
    if (!batch.Values(i).empty()) items.back().rows = batch.Values(i)[0];
    if (optimizer != nullptr) items.back().optimizer = optimizer->core;
  }
  const Unlocked unlocked;
  self.core->InitRows(items, verb);
}

// The arguments of a call that pushes rows, and of pushes to plain keys beside them.
struct PushArguments {
  PushArguments(const std::string& verb, nb::handle keys, nb::handle ids, nb::handle values,
                nb::handle whole_key, nb::handle whole_values, int priority)
      : batch(verb, keys, ids, values),
        whole_keys(verb.c_str(), whole_key),
        whole_batch(whole_keys, whole_values, Use::kRead),
        items(batch.PushItems(priority)),
        whole(whole_batch.PushItems(priority)) {}

  const RowsBatch batch;
  const Keys whole_keys;
  const Batch whole_batch;
  const std::vector<RowsPushItem> items;
  const SmallVector<PushItem, 1> whole;
};

void PushRows(Store& self, const std::string& verb, nb::handle keys, nb::handle ids,
              nb::handle values, nb::handle whole_keys, nb::handle whole_values,
              nb::handle priority) {
  const PushArguments arguments(verb, keys, ids, values, whole_keys, whole_values,
                                PriorityOf(verb.c_str(), keys, priority));
  WithSteps([&] { self.core->PushRows(arguments.items, Span(arguments.whole), verb); });
}

nb::object PushRowsAsync(Store& self, const std::string& verb, nb::handle keys, nb::handle ids,
                         nb::handle values, nb::handle whole_keys, nb::handle whole_values,
                         nb::handle priority) {
  const PushArguments arguments(verb, keys, ids, values, whole_keys, whole_values,
                                PriorityOf(verb.c_str(), keys, priority));
  return Started(
      [&] { return self.core->PushRowsAsync(arguments.items, Span(arguments.whole), verb); });
}

// The arguments of a call that reads rows: an array of ids and an output for each key.  A key may
// occur several times.
struct PullArguments {
  PullArguments(const std::string& verb, nb::handle key, nb::handle given_ids, nb::handle out,
                int priority)
      : keys(verb.c_str(), key), ids(keys, given_ids, Use::kRead), outs(keys, out, Use::kWrite) {
    for (size_t i = 0; i < keys.size(); ++i) {
      items.push_back({keys[i], ids.Arrays(i)[0], outs.Arrays(i)[0], priority});
    }
  }

  const Keys keys;
  const Batch ids;
  const Batch outs;
  std::vector<RowsPullItem> items;
};

void PullRows(Store& self, const std::string& verb, nb::handle keys, nb::handle ids,
              nb::handle outs, nb::handle priority) {
  const PullArguments arguments(verb, keys, ids, outs, PriorityOf(verb.c_str(), keys, priority));
  const Unlocked unlocked;
  self.core->PullRows(arguments.items, verb);
}

nb::object PullRowsAsync(Store& self, const std::string& verb, nb::handle keys, nb::handle ids,
                         nb::handle outs, nb::handle priority) {
  const PullArguments arguments(verb, keys, ids, outs, PriorityOf(verb.c_str(), keys, priority));
  return Started([&] { return self.core->PullRowsAsync(arguments.items, verb); });
}

nb::tuple DescribeRows(Store& self, const std::string& verb, nb::handle key) {
  const KeyView name = Named(verb.c_str(), key);
  KVStore::KeyInfo info;
  {
    const Unlocked unlocked;
    info = self.core->Describe(name, verb);
  }
  nb::list shape;
  for (const int64_t extent : info.shape) shape.append(extent);
  const nb::object rows = info.by_rows ? nb::cast(info.row_count) : nb::object(nb::none());
  return nb::make_tuple(nb::tuple(shape), std::string(Name(info.dtype)), rows);
}

nb::tuple ExportRows(Store& self, nb::handle key, uint64_t first, uint64_t end,
                     std::optional<uint64_t> since) {
  const KeyView name = Named("export_rows", key);
  RowsExport made;
  {
    const Unlocked unlocked;
    made = self.core->ExportRows(name, {first, end, since});
  }
  return nb::make_tuple(ToPython(made.rows.ids), ToPython(made.rows.values), made.version);
}

void ImportRows(Store& self, nb::handle key, nb::handle ids, nb::handle values) {
  const RowsBatch batch("import_rows", key, ids, values);
  const Unlocked unlocked;
  self.core->ImportRows(batch.keys()[0], *batch.Values(0)[0]);
}

nb::dict TableStatsOf(Store& self, nb::handle key) {
  const KeyView name = Named("table_stats", key);
  TableStats stats;
  {
    const Unlocked unlocked;
    stats = self.core->StatsOfTable(name);
  }
  nb::dict dict;
  dict["rows"] = stats.rows;
  dict["candidates"] = stats.candidates;
  dict["evicted"] = stats.evicted;
  dict["memory_bytes"] = stats.memory_bytes;
  dict["version"] = stats.version;
  dict["disk_rows"] = stats.disk_rows;
  dict["disk_bytes"] = stats.disk_bytes;
  return dict;
}

}  // namespace

void BindRows(nb::module_& m, nb::class_<Store>& store) {
  nb::class_<RowInitializer>(m, "RowInitializer", "The value of rows that were never written.")
      .def(
          "__init__",
          [](RowInitializer* self, const std::string& kind, double a, double b, uint64_t seed) {
            using Kind = RowInitializer::Kind;
            new (self) RowInitializer{
                ValueOf<Kind>("initializer", kind, {"constant", "uniform", "normal"}), a, b, seed};
          },
          nb::arg("kind") = "constant", nb::arg("a") = 0.0, nb::arg("b") = 0.0,
          nb::arg("seed") = 0);
  nb::class_<RowPolicy>(m, "RowPolicy", "Which rows a table admits, removes and has in memory.")
      .def(
          "__init__",
          [](RowPolicy* self, uint32_t admit_count, uint64_t age_max, uint64_t rows_max,
             const std::string& score, bool has_notes, uint64_t memory_max, bool replaces_all) {
            using Score = RowPolicy::Score;
            new (self) RowPolicy{.admit_count = admit_count,
                                 .age_max = age_max,
                                 .rows_max = rows_max,
                                 .score = ValueOf<Score>("score", score, {"age", "count", "norm"}),
                                 .has_notes = has_notes,
                                 .replaces_all = replaces_all,
                                 .memory_max = memory_max};
          },
          nb::kw_only(), nb::arg("admit_count") = 1, nb::arg("age_max") = 0,
          nb::arg("rows_max") = 0, nb::arg("score") = "age", nb::arg("has_notes") = false,
          nb::arg("memory_max") = 0, nb::arg("replaces_all") = false);
  nb::class_<TableForm>(m, "TableForm", "The form of a table of rows.")
      .def(
          "__init__",
          [](TableForm* self, std::vector<int64_t> row_shape, const std::string& dtype,
             uint64_t row_count, const RowInitializer& initializer, const RowPolicy& policy) {
            new (self) TableForm{std::move(row_shape), dtype, row_count, initializer, policy};
          },
          nb::kw_only(), nb::arg("row_shape"), nb::arg("dtype"), nb::arg("row_count"),
          nb::arg("initializer") = RowInitializer(), nb::arg("policy") = RowPolicy());
  store
      .def("_init_rows", &InitRows, nb::arg("verb"), nb::arg("keys"), nb::arg("forms"),
           nb::arg("ids"), nb::arg("values"), nb::arg("whole"), nb::arg("mode"),
           nb::arg("optimizer").none() = nb::none())
      .def("_push_rows", &PushRows, nb::arg("verb"), nb::arg("keys"), nb::arg("ids"),
           nb::arg("values"), nb::arg("whole_keys"), nb::arg("whole_values"),
           nb::arg("priority").none())
      .def("_push_rows_async", &PushRowsAsync, nb::arg("verb"), nb::arg("keys"), nb::arg("ids"),
           nb::arg("values"), nb::arg("whole_keys"), nb::arg("whole_values"),
           nb::arg("priority").none(),
           nb::sig("def _push_rows_async(self, verb: str, keys: object, ids: object, "
                   "values: object, whole_keys: object, whole_values: object, priority: int) -> "
                   "Operation"))
      .def("_pull_rows", &PullRows, nb::arg("verb"), nb::arg("keys"), nb::arg("ids"),
           nb::arg("outs"), nb::arg("priority").none())
      .def("_pull_rows_async", &PullRowsAsync, nb::arg("verb"), nb::arg("keys"), nb::arg("ids"),
           nb::arg("outs"), nb::arg("priority").none(),
           nb::sig("def _pull_rows_async(self, verb: str, keys: object, ids: object, outs: object, "
                   "priority: int) -> Operation"))
      .def(
          "_export_rows", &ExportRows, nb::arg("key").none(), nb::arg("first"), nb::arg("end"),
          nb::arg("since").none(),
          nb::sig("def _export_rows(self, key: object, first: int, end: int, since: int | None) -> "
                  "tuple[Any, Any, int]"))
      .def("_import_rows", &ImportRows, nb::arg("key"), nb::arg("ids"), nb::arg("values"))
      .def("_table_stats", &TableStatsOf, nb::arg("key").none(),
           nb::sig("def _table_stats(self, key: object) -> dict[str, int]"))
      .def("_describe_rows", &DescribeRows, nb::arg("verb"), nb::arg("key").none(),
           nb::sig("def _describe_rows(self, verb: str, key: object) -> "
                   "tuple[tuple[int, ...], str, int | None]"),
           "Returns shape, dtype and None of a plain key, and of a table the shape of a row, the "
           "dtype "
           "and the number of rows.");
}

}  // namespace tkv::python
