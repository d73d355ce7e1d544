#include "explain.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>

#include "exit_status.h"
#include "formula.h"
#include "number.h"
#include "tkv/dtype.h"
#include "tkv/error.h"
#include "tkv/ndarray.h"
#include "tkv/optimizer.h"

namespace tkv::cli {
namespace {

constexpr const char* kKeyName = "explain";

// The cost of an update for keys of one dtype, or the reason why it is refused.
struct Cost {
  DType dtype;
  size_t read_bytes = 0, written_bytes = 0, kept_bytes = 0;  // of an element
  std::string refusal;
};

struct Explanation {
  std::string text;  // of the program
  std::shared_ptr<Optimizer> optimizer;
  double round, workers;

  const Program& program() const { return optimizer->program(); }
};

//   throws  kInvalidArgument  it cannot be read, or is longer than any program
std::string ReadProgram(const std::string& path) {
  const auto refuse = [&path](const std::string& why) {
    return Error(Code::kInvalidArgument, "explain '" + path + "': " + why);
  };
  std::ifstream file;
  if (path != "-") file.open(path, std::ios::binary);
  if (!file) throw refuse(std::strerror(errno));
  std::istream& input = path == "-" ? std::cin : file;
  std::string text(Program::kTextBytesMax + 1, '\0');
  input.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(input.gcount()));
  if (input.bad()) throw refuse(std::strerror(errno));
  return text;
}

void SetParam(const std::string& text, Optimizer* optimizer) {
  const size_t equals = std::min(text.find('='), text.size());
  const char* const begin = text.data() + std::min(equals + 1, text.size());
  const char* const end = text.data() + text.size();
  double value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stop != end) {
    throw Error(Code::kInvalidArgument, "explain: --param '" + text +
                                            "': NAME=NUMBER is needed, such as learning_rate=0.1");
  }
  optimizer->SetParam(text.substr(0, equals), value);
}

// Returns the update program of a key of a running job.  Without a program, pushes are assigned.
Explanation Ask(const ExplainOptions& options) {
  const auto store = Observe(options, options.store);
  const JobStatus status = store->Status();
  const KeyStatus key = FindKey(status, options, "explain");
  std::shared_ptr<Optimizer> optimizer = store->UpdateOf(key.key.view());
  const auto alive = std::count_if(status.workers.begin(), status.workers.end(),
                                   [](const WorkerStatus& one) { return one.state == "alive"; });
  Explanation made{{}, nullptr, static_cast<double>(key.newest + 1), static_cast<double>(alive)};
  if (optimizer == nullptr) return made;
  made.optimizer = std::move(optimizer);
  made.text = made.program().ToText();
  return made;
}

Explanation Load(const ExplainOptions& options) {
  Explanation made{{}, nullptr, 1, 1};
  if (options.has_key) {
    made = Ask(options);
  } else if (!options.optimizer.empty()) {
    made.optimizer = Optimizer::Create(options.optimizer);
    made.text = made.program().ToText();
  } else if (!options.file.empty()) {
    made.text = ReadProgram(options.file);
    try {
      made.optimizer = std::make_shared<Optimizer>(Program::Parse(made.text));
    } catch (const Error& error) {
      throw Error(error.code(), "explain '" + options.file + "': " + error.what());
    }
  } else {
    throw Error(Code::kInvalidArgument,
                "explain: there is no program; name a FILE, - for standard input, --optimizer, or "
                "--key of a running job");
  }
  if (made.optimizer == nullptr) return made;
  for (const std::string& param : options.params) SetParam(param, made.optimizer.get());
  if (options.round > 0) made.round = options.round;
  if (options.workers > 0) made.workers = options.workers;
  return made;
}

// Returns the reason why keys of a dtype cannot have the program; "": they can.  Tries the program
// on one element.
std::string Refusal(const Optimizer& optimizer, DType dtype) {
  if (!IsArithmetic(dtype)) return "stored and assigned, never updated";
  const Program& program = optimizer.program();
  std::vector<NDArray> states(program.states().size(), NDArray());
  for (NDArray& state : states) state = NDArray::Zeros({1}, ComputeType(dtype));
  for (size_t i = 0; i < program.scalar_states().size(); ++i) {
    states.push_back(NDArray::Zeros({1}, DType::kF64));
  }
  try {
    ApplyUpdate(optimizer, kKeyName, 1, NDArray::Zeros({1}, dtype), NDArray::Zeros({1}, dtype),
                states, NDArray());
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::vector<Cost> CostsOf(const Explanation& explanation, const Formulas::Traffic& traffic) {
  std::vector<Cost> costs;
  for (int i = 0; i <= static_cast<int>(kLastDType); ++i) {
    const auto dtype = static_cast<DType>(i);
    Cost cost{dtype};
    cost.refusal = Refusal(*explanation.optimizer, dtype);
    if (cost.refusal.empty()) {
      const size_t value = ItemSize(dtype), state = ItemSize(ComputeType(dtype));
      cost.read_bytes = traffic.values_read * value + traffic.states_read * state;
      cost.written_bytes = value + traffic.states_written * state;
      cost.kept_bytes = value + explanation.program().states().size() * state;
    }
    costs.push_back(std::move(cost));
  }
  return costs;
}

// Returns the value of a scalar in the shown round; nullopt if it depends on elements.
std::optional<double> ValueOf(const Explanation& explanation,
                              const Formulas::Assignment& assignment) {
  if (!assignment.is_scalar || assignment.pass > 0) return {};
  return explanation.optimizer->Scalar(assignment.name, explanation.round, explanation.workers);
}

bool IsUsed(const Formulas& formulas, const std::string& word) {
  const auto& made = formulas.assignments();
  return std::any_of(made.begin(), made.end(), [&](const Formulas::Assignment& one) {
    return std::count(one.operands.begin(), one.operands.end(), word) > 0;
  });
}

// ---- as text

void PrintRow(const std::string& name, const std::string& text) {
  std::printf("  %-16s %s\n", name.c_str(), text.c_str());
}

void PrintInputs(const Formulas& formulas) {
  std::printf("\ninputs of an update\n");
  PrintRow("sum", "what the workers have pushed for the key in this round, summed; an array");
  PrintRow("value", "what is stored for the key; an array");
  if (IsUsed(formulas, "t")) PrintRow("t", "the number of the round, from 1");
  if (IsUsed(formulas, "n")) PrintRow("n", "the number of workers that have pushed");
}

void PrintStates(const Program& program) {
  if (program.states().empty() && program.scalar_states().empty()) return;
  std::printf("\nstates, kept for each key between updates\n");
  for (const std::string& name : program.states()) {
    PrintRow(name, "an array like the value, zeros at first");
  }
  for (const Program::ScalarState& state : program.scalar_states()) {
    PrintRow(state.name,
             "one float64 for the whole value, " + NumberText(state.initial) + " at first");
  }
}

void PrintParams(const Explanation& explanation) {
  if (explanation.program().params().empty()) return;
  std::printf("\nhyperparameters\n");
  for (const Program::Param& param : explanation.program().params()) {
    const double value = explanation.optimizer->param(param.name);
    const bool is_default = value == param.value;
    PrintRow(param.name,
             NumberText(value) + (is_default ? "" : "  (default " + NumberText(param.value) + ")"));
  }
}

// Returns the note beside a scalar: it is computed once, and its value.
std::string NoteOf(const Explanation& explanation, const Formulas::Assignment& assignment) {
  if (!assignment.is_scalar) return {};
  if (assignment.op == "reduce_sum") return "one number, the sum of all elements";
  const auto value = ValueOf(explanation, assignment);
  return value ? "one number, " + NumberText(*value) : "one number, known when those sums are";
}

// Returns the number of columns of a text in a terminal: its characters, not its bytes.
size_t Columns(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

void PrintLines(const Explanation& explanation, const Formulas& formulas) {
  struct Row {
    int line;
    std::string formula, note;
  };
  std::vector<Row> rows;
  for (const Formulas::Assignment& one : formulas.assignments()) {
    rows.push_back({one.line, one.name + " = " + formulas.Of(one), NoteOf(explanation, one)});
  }
  for (const Formulas::Store& store : formulas.stores()) {
    rows.push_back({store.line, store.target + " becomes " + store.source, {}});
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.line < b.line; });
  size_t width = 0;
  for (const Row& row : rows) width = std::max(width, Columns(row.formula));
  std::printf(
      "\nline by line: for each element, or as one number for all of them, in float64, here in "
      "round %s with %s worker%s\n",
      NumberText(explanation.round).c_str(), NumberText(explanation.workers).c_str(),
      explanation.workers == 1 ? "" : "s");
  for (const Row& row : rows) {
    const size_t padding = row.note.empty() ? 0 : width - Columns(row.formula) + 3;
    std::printf("  %3d  %s%s%s\n", row.line, row.formula.c_str(), std::string(padding, ' ').c_str(),
                row.note.c_str());
  }
}

void PrintCosts(const std::vector<Cost>& costs, const Formulas::Traffic& traffic) {
  std::printf("\nbytes for each element of a key, in %d pass%s over its elements\n", traffic.passes,
              traffic.passes == 1 ? "" : "es");
  std::printf("  %-16s %6s %8s %6s\n", "dtype", "read", "written", "kept");
  std::string stored_only;
  for (const Cost& cost : costs) {
    if (!IsArithmetic(cost.dtype)) {
      stored_only += (stored_only.empty() ? "" : ", ") + std::string(Name(cost.dtype));
    } else if (!cost.refusal.empty()) {
      PrintRow(Name(cost.dtype), "refused: " + cost.refusal);
    } else {
      std::printf("  %-16s %6zu %8zu %6zu\n", Name(cost.dtype), cost.read_bytes, cost.written_bytes,
                  cost.kept_bytes);
    }
  }
  std::printf("  %s are stored and assigned, never updated\n", stored_only.c_str());
  if (traffic.passes > 1) {
    std::printf(
        "\nIt needs the sum of all elements: in a distributed store a key lies whole on one "
        "server.\n");
  }
}

void PrintWords(const Explanation& explanation, const Formulas& formulas,
                const std::vector<Cost>& costs) {
  std::printf(
      "%s: what a server computes for a key when all workers have pushed, and a store of one "
      "process at each push\n\n",
      explanation.program().name().c_str());
  for (const std::string& line : formulas.InShort()) std::printf("  %s\n", line.c_str());
  PrintInputs(formulas);
  PrintStates(explanation.program());
  PrintParams(explanation);
  PrintLines(explanation, formulas);
  PrintCosts(costs, formulas.traffic());
}

// ---- as JSON

// Parameters may be infinite, so numbers are written as text.
std::vector<JsonObject> ParamObjects(const Explanation& explanation) {
  std::vector<JsonObject> objects;
  for (const Program::Param& param : explanation.program().params()) {
    objects.push_back(JsonObject()
                          .Add("name", param.name)
                          .Add("value", NumberText(explanation.optimizer->param(param.name)))
                          .Add("default", NumberText(param.value)));
  }
  return objects;
}

std::vector<JsonObject> StateObjects(const Program& program) {
  std::vector<JsonObject> objects;
  for (const std::string& name : program.states()) {
    objects.push_back(JsonObject().Add("name", name).Add("per", "element").Add("initial", 0));
  }
  for (const Program::ScalarState& state : program.scalar_states()) {
    objects.push_back(
        JsonObject().Add("name", state.name).Add("per", "key").Add("initial", state.initial));
  }
  return objects;
}

std::vector<JsonObject> AssignmentObjects(const Explanation& explanation,
                                          const Formulas& formulas) {
  std::vector<JsonObject> objects;
  for (const Formulas::Assignment& one : formulas.assignments()) {
    JsonObject object;
    object.Add("line", one.line)
        .Add("name", one.name)
        .Add("formula", formulas.Of(one))
        .Add("per", one.is_scalar ? "push" : "element");
    const auto value = ValueOf(explanation, one);
    if (value) object.Add("value", NumberText(*value));
    objects.push_back(std::move(object));
  }
  return objects;
}

std::vector<JsonObject> StoreObjects(const Formulas& formulas) {
  std::vector<JsonObject> objects;
  for (const Formulas::Store& store : formulas.stores()) {
    objects.push_back(JsonObject()
                          .Add("line", store.line)
                          .Add("target", store.target)
                          .Add("source", store.source));
  }
  return objects;
}

std::vector<JsonObject> CostObjects(const std::vector<Cost>& costs) {
  std::vector<JsonObject> objects;
  for (const Cost& cost : costs) {
    JsonObject object;
    object.Add("dtype", Name(cost.dtype));
    if (cost.refusal.empty()) {
      object.Add("read_bytes", cost.read_bytes)
          .Add("written_bytes", cost.written_bytes)
          .Add("kept_bytes", cost.kept_bytes);
    } else {
      object.Add("refusal", cost.refusal);
    }
    objects.push_back(std::move(object));
  }
  return objects;
}

void PrintObject(const Explanation& explanation, const Formulas& formulas,
                 const std::vector<Cost>& costs) {
  Print(JsonObject("program")
            .Add("name", explanation.program().name())
            .Add("short", formulas.InShort())
            .Add("params", ParamObjects(explanation))
            .Add("states", StateObjects(explanation.program()))
            .Add("round", explanation.round)
            .Add("workers", explanation.workers)
            .Add("assignments", AssignmentObjects(explanation, formulas))
            .Add("stores", StoreObjects(formulas))
            .Add("passes", formulas.traffic().passes)
            .Add("dtypes", CostObjects(costs))
            .Add("text", explanation.text));
}

int Explain(const ExplainOptions& options, const Explanation& explanation, Form form) {
  if (explanation.optimizer == nullptr) {
    if (form == Form::kJson) {
      Print(JsonObject("assignment").Add("key", options.key));
    } else {
      std::printf("%s: assignment: value becomes sum, what was pushed in a round, summed\n",
                  Printable(options.key).c_str());
    }
    return kDone;
  }
  const Formulas formulas(explanation.program(), explanation.text);
  const std::vector<Cost> costs = CostsOf(explanation, formulas.traffic());
  if (form == Form::kJson) {
    PrintObject(explanation, formulas, costs);
  } else {
    PrintWords(explanation, formulas, costs);
  }
  return kDone;
}

}  // namespace

int RunExplain(const ExplainOptions& options, Form form) {
  return Looking([&] { return Explain(options, Load(options), form); });
}

}  // namespace tkv::cli
