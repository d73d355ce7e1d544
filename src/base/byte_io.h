// A writer and a reader of little-endian bytes.  The reader trusts nothing: it checks each length
// before use and throws an Error if bytes are missing.

#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/format.h"

namespace tkv {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

class ByteWriter {
 public:
  template <typename T>
  void Number(T value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  // Appends the length (u32) and the bytes.
  void Text(std::string_view text) {
    Number(static_cast<uint32_t>(text.size()));
    bytes_ += text;
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T Number() {
    static_assert(std::is_arithmetic_v<T>);
    T value;
    const std::string_view bytes = Take(sizeof(T));
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  std::string_view Text(size_t size_max) {
    const auto size = Number<uint32_t>();
    if (size > size_max) {
      throw Fail(Code::kInvalidArgument, "a text of {} bytes, at most {} are allowed", size,
                 size_max);
    }
    return Take(size);
  }
  // Reads the number of the items that follow, each of which has at least `item_bytes`.
  uint32_t Count(size_t item_bytes) {
    const auto count = Number<uint32_t>();
    if (count > bytes_.size() / item_bytes) {
      throw Fail(Code::kInvalidArgument, "{} items, but {} bytes are left", count, bytes_.size());
    }
    return count;
  }
  size_t left() const { return bytes_.size(); }
  void End() const {
    if (!bytes_.empty()) throw Fail(Code::kInvalidArgument, "{} bytes too many", bytes_.size());
  }

 private:
  std::string_view Take(size_t size) {
    if (size > bytes_.size()) {
      throw Fail(Code::kInvalidArgument, "cut short: {} bytes wanted, {} left", size,
                 bytes_.size());
    }
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

  std::string_view bytes_;
};

}  // namespace tkv
