#include "batch.h"

#include <utility>

#include "base/format.h"
#include "gil.h"
#include "raised.h"

namespace tkv::python {
namespace {

thread_local PushStep current_step;

// Returns an item of a tuple; borrowed, because a tuple does not change.
nb::handle ItemOf(const nb::object& tuple, size_t i) {
  return PyTuple_GetItem(tuple.ptr(), static_cast<Py_ssize_t>(i));
}

size_t SizeOf(const nb::object& tuple) { return static_cast<size_t>(PyTuple_Size(tuple.ptr())); }

// Counts the items of a tuple, and of tuples nested in it up to the given depth.
size_t CountOf(nb::handle values, int depth) {
  if (depth == 0 || !PyTuple_Check(values.ptr())) return 1;
  const nb::object tuple = nb::borrow(values);
  const size_t size = SizeOf(tuple);
  size_t count = 0;
  for (size_t i = 0; i < size; ++i) count += CountOf(ItemOf(tuple, i), depth - 1);
  return count;
}

// Returns true if the item is a plain number or a list: an element or a row written out, instead of
// an array.
bool IsNumbers(nb::handle item) {
  return PyFloat_CheckExact(item.ptr()) || PyLong_CheckExact(item.ptr()) || IsList(item);
}

// Calls a predicate of the Python package.  Only failed conversions of arguments need it.
bool Is(const char* module, const char* predicate, nb::handle value) {
  return nb::cast<bool>(nb::module_::import_(module).attr(predicate)(value));
}

nb::object Checked(PyObject* fresh) {
  if (fresh == nullptr) throw nb::python_error();
  return nb::steal(fresh);
}

}  // namespace

KeyView Named(const char* verb, nb::handle key) {
  try {
    return ParseKey(key);
  } catch (const Error& error) {
    throw Fail(error.code(), "{}: {}", verb, error.what());
  }
}

nb::object Frozen(nb::handle object, int depth) {
  if (depth == 0 || !IsList(object)) return nb::borrow(object);
  nb::object tuple =
      PyList_Check(object.ptr()) ? Checked(PyList_AsTuple(object.ptr())) : nb::borrow(object);
  const size_t count = SizeOf(tuple);
  bool has_list = false;
  for (size_t i = 0; i < count; ++i) has_list = has_list || IsList(ItemOf(tuple, i));
  if (!has_list) return tuple;
  nb::object frozen = Checked(PyTuple_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; i < count; ++i) {
    nb::object item = Frozen(ItemOf(tuple, i), depth - 1);
    if (PyTuple_SetItem(frozen.ptr(), static_cast<Py_ssize_t>(i), item.release().ptr()) != 0) {
      throw nb::python_error();
    }
  }
  return frozen;
}

Keys::Keys(const char* verb, nb::handle given)
    : verb_(verb), held_(Frozen(given, 1)), is_list_(IsList(given)) {
  try {
    if (!is_list_) {
      views_.push_back(Named(verb, held_));
      return;
    }
    const size_t count = SizeOf(held_);
    views_.reserve(count);
    for (size_t i = 0; i < count; ++i) views_.push_back(Named(verb, ItemOf(held_, i)));
  } catch (const Error& error) {
    if (Is("tensorkv._store.trees", "is_tree", held_)) throw NotDense(error);
    throw;
  }
}

int PriorityOf(const char* verb, nb::handle keys, nb::handle given) {
  const nb::object number = nb::steal(PyNumber_Index(given.ptr()));
  int overflow = 0;
  const long value = number.is_valid() ? PyLong_AsLongAndOverflow(number.ptr(), &overflow) : 0;
  if (number.is_valid() && overflow == 0 && static_cast<int>(value) == value) {
    return static_cast<int>(value);
  }
  ClearError();
  nb::module_::import_("tensorkv._store.arguments").attr("check_priority")(verb, keys, given);
  throw Fail(Code::kInternal, "{}: a priority that Python takes", verb);
}

PushStep SetStep(const PushStep& step) { return std::exchange(current_step, step); }

SmallVector<PushItem, 1> Batch::PushItems(int priority) const {
  auto items = Items<PushItem>(priority);
  for (PushItem& item : items) item.step = current_step;
  return items;
}

Batch::Batch(const Keys& keys, nb::handle values, Use use)
    : keys_(keys), held_(Frozen(values, keys.is_list() ? 2 : 1)) {
  DLPackLoans loans;
  AddAll(use, &loans);
  End(keys, &loans);
}

Batch::Batch(const Keys& keys, nb::handle values, Use use, DLPackLoans* loans)
    : keys_(keys), held_(Frozen(values, keys.is_list() ? 2 : 1)) {
  AddAll(use, loans);
}

void NoteWritten(const nb::object& tensors) {
  if (!tensors.is_valid()) return;
  nb::module_::import_("tensorkv._array.interop").attr("note_written")(tensors);
}

void End(const Keys& keys, DLPackLoans* loans) {
  NamedBy([&] { return std::string(keys.verb()); }, [&] { loans->End(); });
}

void Batch::AddAll(Use use, DLPackLoans* loans) {
  if (!keys_.is_list()) return Add(keys_[0], held_, use, loans);
  const bool is_list = IsList(held_);
  const size_t count = is_list ? SizeOf(held_) : 0;
  if (!is_list || count != keys_.size()) {
    throw Fail(Code::kInvalidArgument, "{}: {} keys need a list of {} values, here is {}",
               keys_.verb(), keys_.size(), keys_.size(),
               is_list ? Format("one of {}", count) : std::string("no list"));
  }
  ends_.reserve(count);
  arrays_.reserve(count);
  constexpr size_t kAhead = 8;  // prefetches the objects of later iterations
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      const auto* const object = reinterpret_cast<const char*>(ItemOf(held_, i + kAhead).ptr());
      __builtin_prefetch(object);
      __builtin_prefetch(object + 64);
    }
    Add(keys_[i], ItemOf(held_, i), use, loans);
  }
}

void Batch::Add(const KeyView& key, nb::handle values, Use use, DLPackLoans* loans) {
  if (IsList(values)) {
    const nb::object list = nb::borrow(values);
    const size_t count = SizeOf(list);
    for (size_t i = 0; i < count; ++i) {
      const nb::handle item = ItemOf(list, i);
      if (IsNumbers(item)) {
        throw Fail(Code::kInvalidArgument,
                   "{} {}: a {} in a list; a list has one array of each device, and "
                   "tkv.nd.array(list) is one array",
                   keys_.verb(), key.ToString(), IsList(item) ? "list" : "number");
      }
      AddArray(key, item, use, loans);
    }
  } else {
    AddArray(key, values, use, loans);
  }
  ends_.push_back(arrays_.size());
}

NDArray& Batch::Import(nb::handle value, Use use, DLPackLoans* loans) {
  if (keeper_ == nullptr) {
    keeper_ = std::make_shared<Keeper>(held_);
    imported_.reserve(CountOf(held_, 2));
  }
  if (imported_.size() == imported_.capacity()) {
    throw Fail(Code::kInternal, "{}: more arrays than were counted", keys_.verb());
  }
  return imported_.emplace_back(ImportForeign(value, use, Life::kCall, keeper_, loans));
}

void Batch::AddArray(const KeyView& key, nb::handle value, Use use, DLPackLoans* loans) {
  if (nb::isinstance<NDArray>(value)) {
    arrays_.push_back(&AsArray(value));
    return;
  }
  try {
    arrays_.push_back(&Import(value, use, loans));
    if (use == Use::kWrite && IsTorch(value)) {
      if (!tensors_.is_valid()) tensors_ = nb::list();
      nb::borrow<nb::list>(tensors_).append(value);
    }
  } catch (const Error& error) {
    const Error named = Fail(error.code(), "{} {}: {}", keys_.verb(), key.ToString(), error.what());
    const bool may_be_rows = error.code() == Code::kInvalidArgument;
    if (may_be_rows && Is("tensorkv._array.rows", "is_rows", value)) throw NotDense(named);
    throw named;
  }
}

std::span<const NDArray* const> Batch::Arrays(size_t i) const {
  const size_t begin = i == 0 ? 0 : ends_[i - 1];
  return {arrays_.data() + begin, ends_[i] - begin};
}

SmallVector<InitItem, 1> Batch::InitItems(std::string_view mode) const {
  SmallVector<InitItem, 1> items;
  for (size_t i = 0; i < keys_.size(); ++i) {
    const auto arrays = Arrays(i);
    if (arrays.size() != 1) {
      throw Fail(Code::kInvalidArgument, "{} {}: {} values, one is needed", keys_.verb(),
                 keys_[i].ToString(), arrays.size());
    }
    items.push_back({keys_[i], arrays[0], mode});
  }
  return items;
}

}  // namespace tkv::python
