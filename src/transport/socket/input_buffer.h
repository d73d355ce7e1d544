// The buffer into which a connection reads heads of frames, records, and the bytes that follow
// bodies.

#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace tkv {

// A buffer of bytes that are added at its end and consumed from its beginning.
class InputBuffer {
 public:
  // Returns the bytes that were added and not consumed yet.
  std::span<const std::byte> bytes() const { return {memory_.data() + begin_, end_ - begin_}; }
  bool is_empty() const { return begin_ == end_; }
  void Consume(size_t bytes) { begin_ += bytes; }
  // Copies a value from the first bytes.  Returns false if more bytes are needed.  Take consumes
  // it.
  template <typename T>
  bool Peek(T* value) const;
  template <typename T>
  bool Take(T* value);

  // Returns the free memory behind the bytes.  Add says how much of it holds bytes now.
  std::span<std::byte> free() { return {memory_.data() + end_, memory_.size() - end_}; }
  void Add(size_t bytes) { end_ += bytes; }

  // Makes the whole buffer at least so large.  If memory is lacking, an existing buffer stays as it
  // is.
  //   throws  std::bad_alloc  there is no buffer yet
  void Enlarge(size_t bytes);
  // Makes free memory behind the bytes.  An empty buffer that has grown a lot shrinks again.
  void MakeRoom();
  // Makes room for so many bytes in total.  The buffer grows with the bytes that have arrived, not
  // with the announced number: at most to twice its size, and only when it is full.
  //   throws  std::bad_alloc
  void GrowTowards(size_t bytes);

  static constexpr size_t kUsualBytes = size_t{64} << 10;

 private:
  void MoveToFront();

  std::vector<std::byte> memory_;
  size_t begin_ = 0, end_ = 0;
};

template <typename T>
bool InputBuffer::Peek(T* value) const {
  static_assert(std::is_trivially_copyable_v<T>);
  if (end_ - begin_ < sizeof(T)) return false;
  std::memcpy(value, memory_.data() + begin_, sizeof(T));
  return true;
}

template <typename T>
bool InputBuffer::Take(T* value) {
  if (!Peek(value)) return false;
  Consume(sizeof(T));
  return true;
}

}  // namespace tkv
