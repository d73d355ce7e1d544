// tkv_store_*: keys that are stored row by row.

#include "tkv/rows.h"

#include "c_api/items.h"
#include "c_api/values.h"

namespace tkv::c_api {
namespace {

static_assert(TKV_ROWS_MAX == kRowsMax);
static_assert(TKV_ROW_CONSTANT == int(RowInitializer::Kind::kConstant) &&
              TKV_ROW_UNIFORM == int(RowInitializer::Kind::kUniform) &&
              TKV_ROW_NORMAL == int(RowInitializer::Kind::kNormal));
static_assert(TKV_SCORE_AGE == int(RowPolicy::Score::kAge) &&
              TKV_SCORE_COUNT == int(RowPolicy::Score::kCount) &&
              TKV_SCORE_NORM == int(RowPolicy::Score::kNorm));

// Returns `number` if it is a value of an enum that ends with `last`.
int NumberUpTo(int last, int number, const KeyView& key, const char* what) {
  if (number >= 0 && number <= last) return number;
  throw Fail(Code::kInvalidArgument, "init_table {}: {} {}, 0 to {} are possible", key.ToString(),
             what, number, last);
}

RowInitializer InitializerOf(const tkv_table_options& options, const KeyView& key) {
  const int kind = NumberUpTo(TKV_ROW_NORMAL, options.initializer, key, "initializer");
  return {static_cast<RowInitializer::Kind>(kind), options.initializer_a, options.initializer_b,
          options.seed};
}

RowPolicy PolicyOf(const tkv_table_options& options, const KeyView& key) {
  RowPolicy policy;
  if (options.admit_count > 0) policy.admit_count = options.admit_count;
  policy.age_max = options.age_max;
  policy.rows_max = options.rows_max;
  policy.score =
      static_cast<RowPolicy::Score>(NumberUpTo(TKV_SCORE_NORM, options.score, key, "score"));
  policy.has_notes = options.has_notes != 0;
  policy.memory_max = options.memory_max;
  return policy;
}

void InitTable(KVStore* store, const tkv_key* key, const tkv_table_options* given) {
  const char* const verb = "init_table";
  const KeyView name = KeyOf(key, verb);
  const tkv_table_options options = Read(given, verb, "tkv_table_options");
  if ((options.ids == nullptr) != (options.values == nullptr)) {
    throw Fail(Code::kInvalidArgument, "{} {}: ids and values go together; the {} are null", verb,
               name.ToString(), options.ids == nullptr ? "ids" : "values");
  }
  RowsInitItem item{.key = name,
                    .row_shape = ShapeOf(options.row_shape, options.row_rank, verb),
                    .dtype = DTypeOf(options.dtype, verb),
                    .initializer = InitializerOf(options, name),
                    .policy = PolicyOf(options, name)};
  if (options.row_count > 0) item.row_count = options.row_count;
  if (options.optimizer != nullptr) item.optimizer = options.optimizer->core;
  if (options.mode != nullptr) item.mode = Text(options.mode, verb, "the mode");
  Rows rows;
  if (options.ids != nullptr) {
    rows = {options.ids->core, options.values->core};
    item.rows = &rows;
  }
  store->InitRows(std::span(&item, 1));
}

RowsFilter FilterOf(const tkv_rows_filter* given, const char* verb) {
  const tkv_rows_filter filter = ReadOr(given, verb, "tkv_rows_filter");
  RowsFilter made;
  made.first = filter.first;
  if (filter.end > 0) made.end = filter.end;
  if (filter.is_new != 0) made.since = filter.since;
  return made;
}

template <typename Call>
tkv_code WithRows(tkv_store* store, const tkv_rows_item* items, size_t count, const char* verb,
                  tkv_error** error, Call call) {
  return Try(error, [&] {
    KVStore& core = StoreOf(store, verb);
    call(core, RowsItems(items, count, verb));
  });
}

}  // namespace
}  // namespace tkv::c_api

using namespace tkv::c_api;
using tkv::KVStore;

tkv_code tkv_store_init_table(tkv_store* store, const tkv_key* key,
                              const tkv_table_options* options, tkv_error** error) {
  return Try(error, [&] { InitTable(&StoreOf(store, "init_table"), key, options); });
}

tkv_code tkv_store_push_rows(tkv_store* store, const tkv_rows_item* items, size_t count,
                             tkv_error** error) {
  return WithRows(store, items, count, "push_rows", error,
                  [](KVStore& core, const RowsItems& list) { core.PushRows(list.ForPush()); });
}
tkv_code tkv_store_pull_rows(tkv_store* store, const tkv_rows_item* items, size_t count,
                             tkv_error** error) {
  return WithRows(store, items, count, "pull_rows", error,
                  [](KVStore& core, const RowsItems& list) { core.PullRows(list.ForPull()); });
}
tkv_code tkv_store_push_rows_async(tkv_store* store, const tkv_rows_item* items, size_t count,
                                   tkv_ticket** ticket, tkv_error** error) {
  return Give(ticket, error, "push_rows", [&] {
    KVStore& core = StoreOf(store, "push_rows");
    return core.PushRowsAsync(RowsItems(items, count, "push_rows").ForPush());
  });
}
tkv_code tkv_store_pull_rows_async(tkv_store* store, const tkv_rows_item* items, size_t count,
                                   tkv_ticket** ticket, tkv_error** error) {
  return Give(ticket, error, "pull_rows", [&] {
    KVStore& core = StoreOf(store, "pull_rows");
    return core.PullRowsAsync(RowsItems(items, count, "pull_rows").ForPull());
  });
}

tkv_code tkv_store_export_rows(tkv_store* store, const tkv_key* key, const tkv_rows_filter* filter,
                               tkv_array** ids, tkv_array** values, uint64_t* version,
                               tkv_error** error) {
  return Try(error, [&] {
    const char* const verb = "export_rows";
    KVStore& core = StoreOf(store, verb);
    for (const void* place :
         {static_cast<void*>(ids), static_cast<void*>(values), static_cast<void*>(version)}) {
      CheckNotNull(place, verb, "the place for a result");
    }
    const tkv::RowsExport made = core.ExportRows(KeyOf(key, verb), FilterOf(filter, verb));
    auto ids_made = std::make_unique<tkv_array>(made.rows.ids);
    *values = new tkv_array(made.rows.values);
    *ids = ids_made.release();
    *version = made.version;
  });
}
tkv_code tkv_store_import_rows(tkv_store* store, const tkv_key* key, tkv_array* ids,
                               tkv_array* values, tkv_error** error) {
  return Try(error, [&] {
    const char* const verb = "import_rows";
    KVStore& core = StoreOf(store, verb);
    const tkv::KeyView name = KeyOf(key, verb);
    core.ImportRows(
        name, {Core(ids, verb, "the array of ids"), Core(values, verb, "the array of values")});
  });
}

tkv_code tkv_store_table_stats(tkv_store* store, const tkv_key* key, tkv_table_stats* stats,
                               tkv_error** error) {
  return Try(error, [&] {
    const char* const verb = "table_stats";
    KVStore& core = StoreOf(store, verb);
    Read(stats, verb, "tkv_table_stats");
    const tkv::TableStats found = core.StatsOfTable(KeyOf(key, verb));
    Write(tkv_table_stats{0, found.rows, found.candidates, found.evicted, found.memory_bytes,
                          found.version, found.disk_rows, found.disk_bytes},
          stats);
  });
}
