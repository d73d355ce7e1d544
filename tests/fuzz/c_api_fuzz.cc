// Makes random calls of the C interface: handles of every kind, null handles, closed stores, small
// shapes, structs of other versions.  For all arguments a call must return a known code.  A call
// that fails must set an error and leave its outputs unchanged, another call must set no error.
// The library must free each object that it was given to free exactly once.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <string>
#include <vector>

#include "tests/fuzz/reader.h"
#include "tkv/tkv.h"

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

// Returns an address that no result has.
template <typename Handle>
Handle* Untouched() {
  static char place;
  return reinterpret_cast<Handle*>(&place);
}

// Makes a call and checks its code and its error.  Returns true if the call succeeded.
template <typename Call>
bool Succeeds(Call call) {
  tkv_error* error = Untouched<tkv_error>();
  const tkv_code code = call(&error);
  Require(error != Untouched<tkv_error>());
  Require(tkv_error_code(error) == code && code != TKV_INTERNAL);
  Require(code == TKV_OK || *tkv_error_message(error) != '\0');
  Require(code == TKV_OK || *tkv_code_name(code) != '\0');
  tkv_error_release(error);
  return code == TKV_OK;
}

// A fixed number of handles of one kind, by number.  The first is always null.
template <typename Handle, Handle* (*kRetain)(Handle*), void (*kRelease)(Handle*)>
class Pool {
 public:
  ~Pool() {
    for (Handle* handle : handles_) kRelease(handle);
  }
  Handle* At(uint8_t number) const { return handles_[number % std::size(handles_)]; }
  void Put(uint8_t number, Handle* handle) {
    Handle*& place = handles_[1 + number % (std::size(handles_) - 1)];
    kRelease(place);
    place = handle;
  }
  // Makes two numbers share one handle.
  void Share(uint8_t from, uint8_t to) { Put(to, kRetain(At(from))); }

 private:
  Handle* handles_[6] = {};
};

// The number of objects that the library has to free.  Each lives until it is freed, once.
int live_owners = 0;
struct Owner {
  bool fails = false;
};
Owner* NewOwner(bool fails) {
  ++live_owners;
  return new Owner{fails};
}
void FreeOwner(void* owner) {
  --live_owners;
  delete static_cast<Owner*>(owner);
}

tkv_error* Update(void* context, const tkv_key*, tkv_array* sum, tkv_array* stored) {
  if (static_cast<Owner*>(context)->fails) return tkv_error_create(TKV_ABORTED, "no");
  tkv_operands operands = TKV_INIT(tkv_operands);
  operands.a = operands.out = stored;
  operands.b = sum;
  tkv_error* error = nullptr;
  tkv_array_compute(TKV_ADD, &operands, nullptr, &error);
  return error;
}

class Machine {
 public:
  explicit Machine(tkv::test::Reader in) : in_(in) {
    for (uint8_t place = 0; place < 3; ++place) arrays_.Put(place, NewArray());
    arrays_.Put(3, NewIds());
    stores_.Put(0, NewStoreWith({{"w", 0}, {"t", 0}}));
    stores_.Put(1, NewStoreWith({{nullptr, 0}, {nullptr, 1}}));
    tkv_optimizer* sgd = nullptr;
    Require(tkv_optimizer_create("sgd", nullptr, &sgd, nullptr) == TKV_OK);
    optimizers_.Put(0, sgd);
  }

  void Run() {
    for (int step = 0; step < 60 && in_.size > 0; ++step) {
      (this->*kSteps[in_.Next() % std::size(kSteps)])();
    }
  }

 private:
  using Step = void (Machine::*)();
  static const Step kSteps[32];

  // ---- initial objects
  static tkv_array* NewArray() {
    const int64_t shape[] = {2, 3};
    tkv_array* array = nullptr;
    Require(tkv_array_full(shape, 2, TKV_F32, {TKV_CPU, 0}, 1, &array, nullptr) == TKV_OK);
    return array;
  }
  static tkv_array* NewIds() {
    const int64_t ids[] = {1, 5}, count = 2;
    tkv_array* array = nullptr;
    Require(tkv_array_from_bytes(ids, sizeof ids, &count, 1, TKV_I64, {TKV_CPU, 0}, &array,
                                 nullptr) == TKV_OK);
    return array;
  }
  // Returns a store with a value (2, 3) and a table of rows (3).
  static tkv_store* NewStoreWith(const tkv_key (&keys)[2]) {
    tkv_store* store = nullptr;
    Require(tkv_store_create("local", nullptr, &store, nullptr) == TKV_OK);
    tkv_array* const value = NewArray();
    const tkv_item item{keys[0], &value, 1, 0, nullptr};
    Require(tkv_store_init(store, &item, 1, nullptr) == TKV_OK);
    tkv_array_release(value);
    const int64_t row[] = {3};
    tkv_table_options options = TKV_INIT(tkv_table_options);
    options.row_shape = row;
    options.row_rank = 1;
    options.has_notes = 1;
    Require(tkv_store_init_table(store, &keys[1], &options, nullptr) == TKV_OK);
    return store;
  }

  // ---- arguments
  const char* Text() {
    static const char* const kTexts[] = {nullptr,  "",        "w",     "v",
                                         "t",      "sgd",     "local", "adam",
                                         "\xff",   "async",   "2bit",  "learning_rate",
                                         "device", "threads", "1",     "momentum"};
    return kTexts[in_.Next() % std::size(kTexts)];
  }
  // Returns a key, mostly one that new stores have.
  tkv_key Key() {
    const uint8_t number = in_.Next();
    if (number < 128) return {number % 2 == 0 ? "w" : "t", 0};
    if (number < 230) return {nullptr, number % 2};
    return {number % 2 == 0 ? Text() : nullptr, number % 5};
  }
  tkv_dtype DType() {
    const uint8_t number = in_.Next();
    return static_cast<tkv_dtype>(number < 200 ? number % 16 : number - 220);
  }
  tkv_context Context() {
    const uint8_t number = in_.Next();
    return number < 240 ? tkv_context{TKV_CPU, number % 2}
                        : tkv_context{static_cast<tkv_device>(number % 4), number - 250};
  }
  // A shape of up to three dimensions, or none.
  struct Dims {
    int64_t sides[3];
    int32_t rank;
    const int64_t* data() const { return rank < 0 ? nullptr : sides; }
  };
  Dims Shape() {
    Dims dims{};
    dims.rank = static_cast<int32_t>(in_.Next() % 5) - 1;
    if (dims.rank > 2) dims.rank = 2;
    for (int64_t& side : dims.sides) {
      const uint8_t number = in_.Next();
      side = number < 250 ? number % 4 : number - 253;
    }
    return dims;
  }
  tkv_array* Array() { return arrays_.At(in_.Next()); }
  tkv_array* IdsOrArray() {
    const uint8_t number = in_.Next();
    return arrays_.At(number < 200 ? 4 : number);
  }
  tkv_store* Store() {
    const uint8_t number = in_.Next();
    return stores_.At(number < 128 ? 1 : number);
  }
  tkv_optimizer* Optimizer() { return optimizers_.At(in_.Next()); }

  // Returns the number of items, mostly one.
  size_t ItemCount() {
    const uint8_t number = in_.Next();
    return number < 160 ? 1 : number % 4;
  }
  // Returns items with up to two arrays each.
  std::vector<tkv_item> Items() {
    std::vector<tkv_item> items(ItemCount());
    for (tkv_item& item : items) {
      item.key = Key();
      lists_.push_back({Array(), Array()});
      item.arrays = in_.Next() % 16 == 0 ? nullptr : lists_.back().data();
      item.array_count = 1 + in_.Next() % 4 / 2;
      if (in_.Next() % 16 == 0) item.array_count = 0;
      item.mode = in_.Next() % 8 == 0 ? Text() : nullptr;
    }
    return items;
  }
  std::vector<tkv_rows_item> RowsItems() {
    std::vector<tkv_rows_item> items(ItemCount());
    for (tkv_rows_item& item : items) item = {Key(), IdsOrArray(), Array(), 0};
    return items;
  }
  // Copies the struct to memory of another version's size, or gives it a size that no version has.
  template <typename Struct>
  Struct* Sized(Struct given) {
    const uint8_t number = in_.Next();
    const size_t tail = number % 4 == 0 ? number % 32 : 0;
    given.size = number > 250 ? number - 251 : sizeof given + tail;
    structs_.emplace_back(sizeof given + tail);
    std::memcpy(structs_.back().data(), &given, sizeof given);
    if (number % 8 == 0 && tail > 0) structs_.back().back() = 1;
    return number == 250 ? nullptr : reinterpret_cast<Struct*>(structs_.back().data());
  }

  // ---- results
  template <typename Handles, typename Call>
  void Give(Handles* handles, Call call) {
    auto result = Untouched<std::remove_pointer_t<decltype(handles->At(0))>>();
    const auto none = result;
    const bool good = Succeeds([&](tkv_error** error) { return call(&result, error); });
    Require(good == (result != none) && result != nullptr);
    if (good) handles->Put(in_.Next(), result);
  }
  template <typename Call>
  void GiveArray(Call call) {
    Give(&arrays_, call);
  }

  // ---- arrays
  void Full() {
    const Dims shape = Shape();
    const tkv_dtype dtype = DType();
    const tkv_context context = Context();
    GiveArray([&](tkv_array** array, tkv_error** error) {
      return tkv_array_full(shape.data(), shape.rank, dtype, context, 1, array, error);
    });
  }
  void FromBytes() {
    const Dims shape = Shape();
    const tkv_dtype dtype = DType();
    const uint8_t bytes[32] = {in_.Next()};
    const size_t count = in_.Next() % 33;
    GiveArray([&](tkv_array** array, tkv_error** error) {
      return tkv_array_from_bytes(bytes, count, shape.data(), shape.rank, dtype, Context(), array,
                                  error);
    });
  }
  void Ids() {
    const int64_t ids[] = {in_.Next() % 8, in_.Next() - 1, in_.Next()};
    const int64_t count = in_.Next() % 4;
    GiveArray([&](tkv_array** array, tkv_error** error) {
      return tkv_array_from_bytes(ids, static_cast<size_t>(count) * sizeof *ids, &count, 1, TKV_I64,
                                  {TKV_CPU, 0}, array, error);
    });
  }
  void Wrap() {
    const int64_t shape[] = {in_.Next() % 3, in_.Next() % 3};
    const int64_t strides[] = {in_.Next() % 3, in_.Next() % 3};
    const bool has_strides = in_.Next() % 2 == 0;
    Owner* const owner = NewOwner(false);
    tkv_array* array = Untouched<tkv_array>();
    const bool good = Succeeds([&](tkv_error** error) {
      return tkv_array_wrap(memory_, shape, has_strides ? strides : nullptr, 2, DType(), Context(),
                            in_.Next() % 2, owner, FreeOwner, &array, error);
    });
    if (good) arrays_.Put(in_.Next(), array);
    if (!good) FreeOwner(owner);
  }
  void Derive() {
    tkv_array* const array = Array();
    const int64_t a = in_.Next() % 6 - 1, b = in_.Next() % 6 - 1;
    const uint8_t kind = in_.Next();
    const Dims shape = Shape();
    GiveArray([&](tkv_array** view, tkv_error** error) {
      switch (kind % 6) {
        case 0:
          return tkv_array_slice(array, a, b, view, error);
        case 1:
          return tkv_array_at(array, a, view, error);
        case 2:
          return tkv_array_reshape(array, shape.data(), shape.rank, view, error);
        case 3:
          return tkv_array_with_context(array, Context(), view, error);
        case 4:
          return tkv_array_convert(array, DType(), view, error);
        default:
          return tkv_array_copy(array, view, error);
      }
    });
  }
  void ByDLPack() {
    void* managed = Untouched<void>();
    tkv_array* const array = Array();
    if (!Succeeds([&](tkv_error** e) { return tkv_array_to_dlpack(array, &managed, e); })) return;
    GiveArray([&](tkv_array** back, tkv_error** error) {
      return tkv_array_from_dlpack(managed, back, error);
    });
  }
  void Write() {
    const uint8_t bytes[64] = {in_.Next()};
    uint8_t read[64];
    tkv_array* const array = Array();
    const size_t size = in_.Next() % 2 == 0 ? tkv_array_bytes(array) : in_.Next() % 64;
    if (size > sizeof bytes) return;
    Succeeds([&](tkv_error** e) { return tkv_array_write(array, bytes, size, e); });
    Succeeds([&](tkv_error** e) { return tkv_array_read(array, read, size, e); });
    Succeeds([&](tkv_error** e) { return tkv_array_fill(array, in_.Next(), e); });
    Succeeds([&](tkv_error** e) { return tkv_array_copy_from(array, Array(), e); });
  }
  void AskArray() {
    tkv_array* const array = Array();
    const int32_t rank = tkv_array_rank(array);
    Require((rank == -1) == (array == nullptr));
    int64_t strides[64];
    Succeeds([&](tkv_error** e) { return tkv_array_strides(array, strides, e); });
    int64_t size = array == nullptr ? 0 : 1;
    for (int32_t axis = 0; axis < rank; ++axis) size *= tkv_array_shape(array)[axis];
    Require(array == nullptr || tkv_array_size(array) == size);
    Require(array == nullptr ||
            tkv_array_bytes(array) ==
                static_cast<size_t>(size) * tkv_dtype_size(tkv_array_dtype(array)));
    void* data = nullptr;
    Succeeds([&](tkv_error** e) { return tkv_array_data(array, in_.Next() % 2, 0, &data, e); });
  }
  void Compute() {
    tkv_operands operands = TKV_INIT(tkv_operands);
    operands.a = Array();
    operands.b = Array();
    operands.number = in_.Next() - 3;
    operands.reversed = in_.Next() % 2;
    const auto op = static_cast<tkv_op>(in_.Next() % 14 - 1);
    if (in_.Next() % 2 == 0) {
      operands.out = Array();
      if (operands.out == nullptr) return;
      const tkv_operands* const given = Sized(operands);
      Succeeds([&](tkv_error** e) { return tkv_array_compute(op, given, nullptr, e); });
      return;
    }
    const tkv_operands* const given = Sized(operands);
    GiveArray([&](tkv_array** r, tkv_error** e) { return tkv_array_compute(op, given, r, e); });
  }
  void ShareArray() { arrays_.Share(in_.Next(), in_.Next()); }

  // ---- optimizers
  void NewOptimizer() {
    const tkv_param params[] = {{Text(), in_.Next() / 8.0}};
    tkv_optimizer_options options = TKV_INIT(tkv_optimizer_options);
    options.params = params;
    options.param_count = in_.Next() % 2;
    options.multi_precision = in_.Next() % 2;
    options.not_lazy = in_.Next() % 2;
    const tkv_optimizer_options* const given = Sized(options);
    const char* const name = in_.Next() % 4 == 0 ? Text() : "sgd";
    Give(&optimizers_, [&](tkv_optimizer** optimizer, tkv_error** error) {
      return tkv_optimizer_create(name, given, optimizer, error);
    });
  }
  void ChangeOptimizer() {
    double value = 0;
    const tkv_key key = Key();
    tkv_optimizer* const optimizer = Optimizer();
    const char* const name = Text();
    Succeeds([&](tkv_error** e) { return tkv_optimizer_param(optimizer, name, &value, e); });
    Succeeds([&](tkv_error** e) { return tkv_optimizer_set_param(optimizer, name, value / 2, e); });
    Succeeds([&](tkv_error** e) {
      return tkv_optimizer_set_multiplier(optimizer, name, &key, in_.Next() / 16.0, e);
    });
  }
  void ShareOptimizer() { optimizers_.Share(in_.Next(), in_.Next()); }

  // ---- stores
  void NewStore() {
    const tkv_option option[] = {{Text(), Text()}};
    tkv_store_options options = TKV_INIT(tkv_store_options);
    options.ignores_environment = 1;
    options.options = option;
    options.option_count = in_.Next() % 4 == 0;
    const tkv_store_options* const given = Sized(options);
    const char* const type = in_.Next() % 4 == 0 ? Text() : "local";
    Give(&stores_, [&](tkv_store** store, tkv_error** error) {
      return tkv_store_create(type, given, store, error);
    });
  }
  void ShareStore() { stores_.Share(in_.Next(), in_.Next()); }
  void CloseStore() {
    tkv_store* const store = Store();
    if (in_.Next() % 4 != 0) return;  // so that most stores stay open
    Require(Succeeds([&](tkv_error** e) { return tkv_store_close(store, in_.Next() % 2, e); }) ==
            (store != nullptr));
  }
  void Init() {
    const auto items = Items();
    Succeeds([&](tkv_error** e) { return tkv_store_init(Store(), items.data(), items.size(), e); });
  }
  void Push() {
    const auto items = Items();
    Succeeds([&](tkv_error** e) { return tkv_store_push(Store(), items.data(), items.size(), e); });
  }
  void Pull() {
    const auto items = Items();
    Succeeds([&](tkv_error** e) { return tkv_store_pull(Store(), items.data(), items.size(), e); });
  }
  void PushPull() {
    const auto in = Items(), out = Items();
    const bool makes = in_.Next() % 2 == 0;
    Succeeds([&](tkv_error** error) {
      return (makes ? tkv_store_broadcast : tkv_store_pushpull)(Store(), in.data(), in.size(),
                                                                out.data(), out.size(), error);
    });
  }
  void Delete() {
    const tkv_key key = Key();
    Succeeds([&](tkv_error** e) { return tkv_store_delete(Store(), &key, e); });
  }
  void AskStore() {
    tkv_store* const store = Store();
    const tkv_key key = Key();
    size_t size = 0;
    uint64_t round = 0;
    int32_t contains = -1;
    tkv_text* text = nullptr;
    tkv_keys* keys = nullptr;
    Succeeds([&](tkv_error** e) { return tkv_store_size(store, &size, e); });
    Succeeds([&](tkv_error** e) { return tkv_store_round(store, &key, &round, e); });
    Succeeds([&](tkv_error** e) { return tkv_store_contains(store, &key, &contains, e); });
    Succeeds([&](tkv_error** e) { return tkv_store_stats(store, &text, e); });
    if (Succeeds([&](tkv_error** e) { return tkv_store_keys(store, &keys, e); })) {
      Require(tkv_keys_size(keys) == size);
    }
    tkv_key_info* const info = Sized(tkv_key_info{});
    Succeeds([&](tkv_error** e) { return tkv_store_describe(store, &key, info, e); });
    tkv_keys_release(keys);
    tkv_text_release(text);
  }
  void SetUpdater() {
    Owner* const owner = NewOwner(in_.Next() % 2 == 0);
    const tkv_updater updater = in_.Next() % 4 == 0 ? nullptr : Update;
    if (!Succeeds([&](tkv_error** e) {
          return tkv_store_set_updater(Store(), updater, owner, FreeOwner, e);
        })) {
      FreeOwner(owner);
    }
  }
  void SetOptimizer() {
    Succeeds([&](tkv_error** e) { return tkv_store_set_optimizer(Store(), Optimizer(), e); });
  }
  void SetCompression() {
    const char* const type = Text();
    const char* const keys = Text();
    Succeeds([&](tkv_error** e) {
      return tkv_store_set_compression(Store(), type, in_.Next() / 8.0, 0.1, keys, e);
    });
  }

  // ---- tickets
  void StartPush() {
    const auto items = Items();
    Give(&tickets_, [&](tkv_ticket** ticket, tkv_error** error) {
      return tkv_store_push_async(Store(), items.data(), items.size(), ticket, error);
    });
  }
  void StartPull() {
    const auto items = Items();
    Give(&tickets_, [&](tkv_ticket** ticket, tkv_error** error) {
      return tkv_store_pull_async(Store(), items.data(), items.size(), ticket, error);
    });
  }
  void UseTicket() {
    tkv_ticket* const ticket = tickets_.At(in_.Next());
    Succeeds([&](tkv_error** e) { return tkv_ticket_wait(ticket, in_.Next(), e); });
    (void)tkv_ticket_is_done(ticket);
    (void)tkv_ticket_cancel(ticket);
    Owner* const owner = NewOwner(false);
    if (!Succeeds([&](tkv_error** e) {
          return tkv_ticket_on_end(ticket, [](void*) {}, owner, FreeOwner, e);
        })) {
      FreeOwner(owner);
    }
    tickets_.Share(in_.Next(), in_.Next());
  }

  // ---- rows
  void InitTable() {
    const Dims shape = Shape();
    const tkv_key key = Key();
    tkv_table_options options = TKV_INIT(tkv_table_options);
    options.row_shape = shape.data();
    options.row_rank = shape.rank;
    options.dtype = in_.Next() % 2 == 0 ? TKV_F32 : DType();
    options.row_count = in_.Next() % 2 == 0 ? 0 : in_.Next();
    options.initializer = static_cast<tkv_row_kind>(in_.Next() % 5 - 1);
    options.initializer_a = in_.Next();
    options.initializer_b = in_.Next();
    if (in_.Next() % 4 == 0) options.ids = Array();
    if (in_.Next() % 4 == 0) options.values = Array();
    options.optimizer = in_.Next() % 4 == 0 ? Optimizer() : nullptr;
    options.admit_count = in_.Next() % 3;
    options.age_max = in_.Next() % 4;
    options.rows_max = in_.Next() % 8;
    options.score = static_cast<tkv_row_score>(in_.Next() % 5 - 1);
    options.has_notes = in_.Next() % 2;
    const tkv_table_options* const given = Sized(options);
    Succeeds([&](tkv_error** e) { return tkv_store_init_table(Store(), &key, given, e); });
  }
  void PushRows() {
    const auto items = RowsItems();
    const bool pulls = in_.Next() % 2 == 0;
    Succeeds([&](tkv_error** error) {
      return (pulls ? tkv_store_pull_rows : tkv_store_push_rows)(Store(), items.data(),
                                                                 items.size(), error);
    });
  }
  void ExportRows() {
    const tkv_key key = Key();
    tkv_store* const store = Store();
    tkv_rows_filter filter = TKV_INIT(tkv_rows_filter);
    if (in_.Next() % 2 == 0) {
      filter.first = in_.Next() % 8;
      filter.end = in_.Next() % 16;
      filter.is_new = in_.Next() % 2;
      filter.since = in_.Next() % 4;
    }
    const tkv_rows_filter* const given = Sized(filter);
    tkv_array *ids = Untouched<tkv_array>(), *values = Untouched<tkv_array>();
    uint64_t version = 0;
    const bool good = Succeeds([&](tkv_error** error) {
      return tkv_store_export_rows(store, &key, given, &ids, &values, &version, error);
    });
    Require(good == (ids != Untouched<tkv_array>()) && good == (values != Untouched<tkv_array>()));
    if (!good) return;
    Succeeds([&](tkv_error** e) { return tkv_store_import_rows(Store(), &key, ids, values, e); });
    arrays_.Put(in_.Next(), ids);
    arrays_.Put(in_.Next(), values);
    tkv_table_stats* const stats = Sized(tkv_table_stats{});
    Succeeds([&](tkv_error** e) { return tkv_store_table_stats(store, &key, stats, e); });
  }

  tkv::test::Reader in_;
  double memory_[64] = {};
  std::vector<std::vector<tkv_array*>> lists_;  // the arrays of items
  std::vector<std::vector<char>> structs_;      // the memory of Sized
  Pool<tkv_array, tkv_array_retain, tkv_array_release> arrays_;
  Pool<tkv_optimizer, tkv_optimizer_retain, tkv_optimizer_release> optimizers_;
  Pool<tkv_store, tkv_store_retain, tkv_store_release> stores_;
  Pool<tkv_ticket, tkv_ticket_retain, tkv_ticket_release> tickets_;
};

const Machine::Step Machine::kSteps[32] = {
    &Machine::Full,
    &Machine::Full,
    &Machine::FromBytes,
    &Machine::Ids,
    &Machine::Wrap,
    &Machine::Derive,
    &Machine::ByDLPack,
    &Machine::Write,
    &Machine::AskArray,
    &Machine::Compute,
    &Machine::ShareArray,
    &Machine::NewOptimizer,
    &Machine::ChangeOptimizer,
    &Machine::ShareOptimizer,
    &Machine::NewStore,
    &Machine::ShareStore,
    &Machine::CloseStore,
    &Machine::Init,
    &Machine::Push,
    &Machine::Pull,
    &Machine::PushPull,
    &Machine::Delete,
    &Machine::AskStore,
    &Machine::SetUpdater,
    &Machine::SetOptimizer,
    &Machine::SetCompression,
    &Machine::StartPush,
    &Machine::StartPull,
    &Machine::UseTicket,
    &Machine::InitTable,
    &Machine::PushRows,
    &Machine::ExportRows,
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Machine({data, size}).Run();
  Require(live_owners == 0);
  return 0;
}
