// Checksums of a snapshot, as its index has them: 128 bits of XXH3 in hexadecimal digits.

#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace tkv::checkpoint {

// The checksum of bytes that arrive in pieces.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  void Add(std::span<const std::byte> bytes);
  // Returns the checksum of all bytes so far, as an index has it.
  std::string Digits() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// Returns the checksum of bytes.
std::string CheckOf(std::span<const std::byte> bytes);
std::string CheckOf(const std::string& text);

// A checksum that is not known yet: as many zeros.
extern const std::string kNoCheck;

// Writes the checksum into the first field "check" of a text, which has to exist.  The checksum
// covers the text with zeros in that field.
void Seal(std::string* text);
// Compares the checksum of a sealed text.
//   throws  kDataLoss  there is none, or it does not match; the message names the file
void CheckSeal(const std::string& text, const std::string& file);

}  // namespace tkv::checkpoint
