#include "transport/socket/input_buffer.h"

#include <algorithm>
#include <new>

namespace tkv {
namespace {

constexpr size_t kKept = size_t{1} << 20;  // a buffer larger than this shrinks again

}  // namespace

void InputBuffer::Enlarge(size_t bytes) {
  if (memory_.size() >= bytes) return;
  try {
    memory_.resize(bytes);
  } catch (const std::bad_alloc&) {
    if (memory_.empty()) throw;
  }
}

void InputBuffer::MoveToFront() {
  if (begin_ == 0) return;
  std::memmove(memory_.data(), memory_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
}

void InputBuffer::MakeRoom() {
  if (is_empty()) {
    begin_ = end_ = 0;
    if (memory_.size() > kKept) memory_ = std::vector<std::byte>(kUsualBytes);
  } else if (end_ == memory_.size()) {  // the buffer ends within a head
    MoveToFront();
  }
}

void InputBuffer::GrowTowards(size_t bytes) {
  MoveToFront();
  if (end_ == memory_.size()) memory_.resize(std::min(bytes, memory_.size() * 2));
}

}  // namespace tkv
