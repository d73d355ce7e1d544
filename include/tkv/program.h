// Update programs: updates as data.
//
// A program computes, element by element, the new value and state from the stored ones and the sum
// of a push.  A program is straight-line code in which each name is assigned once.  Parse verifies
// it in one pass, and it runs on any dtype.

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tkv/api.h"

namespace tkv {

struct ProgramBody;

// An immutable update program; copies share one body.
class TKV_API Program {
 public:
  static constexpr int kInstructionsMax = 256;
  static constexpr size_t kStatesMax = 16;  // arrays and scalars together
  static constexpr size_t kTextBytesMax = 64 << 10;

  struct Param {
    std::string name;
    double value;  // default
  };
  // A float64 for the whole value, kept between updates.
  struct ScalarState {
    std::string name;
    double initial;
  };

  // Parses and verifies the text form (its grammar is at the top of src/update/program.cc).
  //   throws  kInvalidArgument  naming the line
  static Program Parse(std::string_view text);

  // Returns the text form; Parse(ToText()) is the same program.
  const std::string& ToText() const noexcept;
  const std::string& name() const noexcept;
  const std::vector<Param>& params() const noexcept;
  const std::vector<std::string>& states() const noexcept;
  const std::vector<ScalarState>& scalar_states() const noexcept;

  const ProgramBody& body() const noexcept { return *body_; }

 private:
  explicit Program(std::shared_ptr<const ProgramBody> body) : body_(std::move(body)) {}
  std::shared_ptr<const ProgramBody> body_;
};

}  // namespace tkv
