// Shows an update program as formulas and counts the arrays that it reads and writes.

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
    bool is_scalar = false;  // computed once per push, not for each element
    int pass = 0;            // passes over the elements that must end before it can be computed
  };
  struct Store {
    int line = 0;
    std::string target, source;
  };
  // The memory traffic of an update, in arrays.
  struct Traffic {
    int passes = 1;
    // In all passes, arrays of the value's dtype: the sum and the value itself.
    int values_read = 0;
    int states_read = 0;
    int states_written = 0;  // besides the value, which every program writes
  };

  // Analyses a program; `text` is its source, with blank lines and comments.
  Formulas(const Program& program, std::string_view text);

  const std::vector<Assignment>& assignments() const { return assignments_; }
  const std::vector<Store>& stores() const { return stores_; }
  const Traffic& traffic() const { return traffic_; }

  // Returns the right side of an assignment, with its operands by name.
  std::string Of(const Assignment& assignment) const;
  // Returns the formulas of the value and the states, one a line.  A name used once is replaced by
  // its expression.  Names used repeatedly come first, each in its own line.
  std::vector<std::string> InShort() const;

 private:
  struct Expression;

  const Assignment* Find(const std::string& name) const;
  Expression Compose(const Assignment& assignment, bool is_nested) const;
  // Returns an operand as text, in brackets if it binds less strongly than `binding`.
  std::string Operand(const std::string& word, int binding, bool is_nested) const;
  // Returns the condition of a `select`: a comparison, or "operand ≠ 0".
  std::string Condition(const std::string& word, bool is_nested) const;
  int PassOf(const std::string& word) const;
  void Add(Assignment assignment);
  // Collects the arrays of the program from which an array is computed, including itself.
  void Collect(const std::string& word, std::set<std::string>* inputs) const;
  void Measure();

  const std::set<std::string> states_;  // the program's state arrays
  std::vector<Assignment> assignments_;
  std::map<std::string, size_t> index_;
  std::map<std::string, int> uses_;
  std::vector<Store> stores_;
  Traffic traffic_;
};

}  // namespace tkv::cli
