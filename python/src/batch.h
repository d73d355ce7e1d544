// Converts the arguments of one call.  A call owns its arguments: it first copies lists to tuples.
// Python code that runs meanwhile (an updater, `__dlpack__`, another thread) may thus change the
// lists.  Errors name the verb and the key.

#pragma once

#include "base/small_vector.h"
#include "bindings.h"

namespace tkv::python {

inline bool IsList(nb::handle object) {
  return PyList_Check(object.ptr()) || PyTuple_Check(object.ptr());
}

// Copies a list to a tuple, and lists nested in it up to the given depth.  Returns another object
// unchanged.
nb::object Frozen(nb::handle object, int depth);

// Parses a key; `verb` begins the error.  The view borrows the text of `key`.
KeyView Named(const char* verb, nb::handle key);

// An argument that is a tree of arrays or a row-sparse value.  Verbs that Python splits into dense
// calls catch it; for the other verbs it is an ordinary error of the argument.
class NotDense : public Error {
 public:
  explicit NotDense(const Error& error) : Error(error) {}
};

// Returns the priority of a call.
//   throws  kInvalidArgument (no whole number of 32 bits), and exceptions of `__index__` that must not
//           be replaced, such as KeyboardInterrupt
int PriorityOf(const char* verb, nb::handle keys, nb::handle given);

// The key or keys of a call.
class Keys {
 public:
  //   throws  NotDense (a tree), and Errors
  Keys(const char* verb, nb::handle given);

  const char* verb() const { return verb_; }
  bool is_list() const { return is_list_; }
  size_t size() const { return views_.size(); }
  const KeyView& operator[](size_t i) const { return views_[i]; }
  int Priority(nb::handle given) const { return PriorityOf(verb_, held_, given); }

 private:
  const char* const verb_;
  const nb::object held_;  // the texts that the views borrow
  const bool is_list_;
  SmallVector<KeyView, 1> views_;
};

// Sets the step of the pushes that this thread begins from now on.  Returns the previous one.
PushStep SetStep(const PushStep& step);

// The arrays given for each key of a call.  A single key has one array or a list of arrays.  A list
// of keys has a list of the same length with these.
class Batch {
 public:
  //   throws  NotDense (a row-sparse value), and Errors
  Batch(const Keys& keys, nb::handle values, Use use);
  // For a call with several batches: the caller ends the loans, before the arrays are used.
  Batch(const Keys& keys, nb::handle values, Use use, DLPackLoans* loans);
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Returns items whose step is the last SetStep of this thread.
  SmallVector<PushItem, 1> PushItems(int priority) const;
  SmallVector<PullItem, 1> PullItems(int priority) const { return Items<PullItem>(priority); }
  SmallVector<InitItem, 1> InitItems(std::string_view mode) const;
  // Returns the arrays of one key.
  std::span<const NDArray* const> Arrays(size_t i) const;
  // Returns the list of PyTorch tensors among outputs; invalid if there are none.
  const nb::object& tensors() const { return tensors_; }

 private:
  void AddAll(Use use, DLPackLoans* loans);
  NDArray& Import(nb::handle value, Use use, DLPackLoans* loans);
  void Add(const KeyView& key, nb::handle values, Use use, DLPackLoans* loans);
  void AddArray(const KeyView& key, nb::handle value, Use use, DLPackLoans* loans);

  template <typename T>
  SmallVector<T, 1> Items(int priority) const {
    SmallVector<T, 1> items;
    items.reserve(keys_.size());
    for (size_t i = 0; i < keys_.size(); ++i) items.push_back({keys_[i], Arrays(i), priority});
    return items;
  }

  const Keys& keys_;
  const nb::object held_;  // the NDArrays in `arrays_`, and the objects of imported arrays
  std::shared_ptr<const void> keeper_;  // keeps `held_` alive for the imported arrays
  SmallVector<size_t, 1> ends_;
  SmallVector<const NDArray*, 8> arrays_;
  // Reserved in full first, so that pointers to elements stay valid.
  std::vector<NDArray> imported_;
  nb::object tensors_;
};

// Reports to autograd that PyTorch tensors were written to; `tensors` is a list or invalid.
void NoteWritten(const nb::object& tensors);

// Ends the loans; the verb begins the error.
void End(const Keys& keys, DLPackLoans* loans);

template <typename Items>
auto Span(const Items& items) {
  return std::span<const typename Items::value_type>(items.data(), items.size());
}

}  // namespace tkv::python
