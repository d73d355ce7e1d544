// The statements of an update program as formulas, and the arrays that they read and write.

#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tkv/program.h"

namespace tkv::cli {

class Formulas {
 public:
  struct Assignment {
    int line = 0;  // in the text, from 1
    std::string name;
    std::string op;
    std::vector<std::string> operands;
    bool is_scalar = false;  // computed once per push, and not for each element
    int pass = 0;            // passes over the elements before it can be computed
  };
  struct Store {
    int line = 0;
    std::string target, source;
  };
  // What an update moves for each element of the value, in arrays.
  struct Traffic {
    int passes = 1;
    int values_read = 0;  // of the dtype of the value: the sum and the value itself, in all passes
    int states_read = 0;
    int states_written = 0;  // beside the value, which every program writes
  };

  // The text is that of the program, with blank lines and comments as it was written.
  Formulas(const Program& program, std::string_view text);

  const std::vector<Assignment>& assignments() const { return assignments_; }
  const std::vector<Store>& stores() const { return stores_; }
  const Traffic& traffic() const { return traffic_; }

  // The right side of an assignment, with its operands by name.
  std::string Of(const Assignment& assignment) const;
  // What becomes of value and states, in lines: a name that is used once is replaced by what it is,
  // and those that are used repeatedly come first.
  std::vector<std::string> InShort() const;

 private:
  struct Expression;

  const Assignment* Find(const std::string& name) const;
  Expression Compose(const Assignment& assignment, bool is_nested) const;
  // An operand, in brackets where it binds less strongly than what stands around it.
  std::string Operand(const std::string& word, int binding, bool is_nested) const;
  // What `select` asks: a comparison, or whether an operand is not zero.
  std::string Condition(const std::string& word, bool is_nested) const;
  int PassOf(const std::string& word) const;
  void Add(Assignment assignment);
  // The arrays of the program that an array is computed from, among them itself.
  void Collect(const std::string& word, std::set<std::string>* inputs) const;
  void Measure();

  const std::set<std::string> states_;  // arrays
  std::vector<Assignment> assignments_;
  std::map<std::string, size_t> index_;
  std::map<std::string, int> uses_;
  std::vector<Store> stores_;
  Traffic traffic_;
};

}  // namespace tkv::cli
