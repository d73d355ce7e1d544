// What the arguments of one call become.  A call owns what it was given: lists are copied to tuples
// before anything else, so that Python code that runs meanwhile (an updater, `__dlpack__`, another
// thread) may change them.  Errors name the verb and the key.

#pragma once

#include "base/small_vector.h"
#include "bindings.h"

namespace tkv::python {

inline bool IsList(nb::handle object) {
  return PyList_Check(object.ptr()) || PyTuple_Check(object.ptr());
}

// A list as a tuple of the same items, and to the given depth lists in it too; anything else as it
// is.
nb::object Frozen(nb::handle object, int depth);

// One key.  The view borrows the text of `key`.
KeyView Named(const char* verb, nb::handle key);

// Thrown while the arguments of a call are read: the key is a tree of arrays, or a value is row-sparse.  A
// call that Python can take apart catches it; for others it is the error of the argument.
class NotDense : public Error {
 public:
  explicit NotDense(const Error& error) : Error(error) {}
};

// Returns the priority of a call.
//   throws  kInvalidArgument (no whole number of 32 bits), and an error of `__index__` that leaves calls
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

// Says which step the pushes that this thread begins from now on belong to; returns what it said before.
PushStep SetStep(const PushStep& step);

// For each key the arrays given for it: a single key has one array or a list; a list of keys has a
// list of the same length of such.
class Batch {
 public:
  //   throws  NotDense (a row-sparse value), and Errors
  Batch(const Keys& keys, nb::handle values, Use use);
  // One of several batches of a call; the loans end before the arrays are used.
  Batch(const Keys& keys, nb::handle values, Use use, DLPackLoans* loans);
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Each belongs to the step that SetStep has said last on this thread.
  SmallVector<PushItem, 1> PushItems(int priority) const;
  SmallVector<PullItem, 1> PullItems(int priority) const { return Items<PullItem>(priority); }
  SmallVector<InitItem, 1> InitItems(std::string_view mode) const;
  // Those of one key.
  std::span<const NDArray* const> Arrays(size_t i) const;
  // Tensors of PyTorch among outputs, a list; invalid if there are none.
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
  const nb::object held_;  // the NDArrays that `arrays_` points to, and all that is imported
  std::shared_ptr<const void> keeper_;  // of `held_`, for the imported
  SmallVector<size_t, 1> ends_;
  SmallVector<const NDArray*, 8> arrays_;
  std::vector<NDArray> imported_;  // with room for all before the first comes
  nb::object tensors_;
};

// Tells autograd that tensors of PyTorch, a list or nothing, have been written to.
void NoteWritten(const nb::object& tensors);

// Ends them; an error begins with the verb.
void End(const Keys& keys, DLPackLoans* loans);

template <typename Items>
auto Span(const Items& items) {
  return std::span<const typename Items::value_type>(items.data(), items.size());
}

}  // namespace tkv::python
