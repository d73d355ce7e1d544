// Update programs and optimizers.

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "gil.h"
#include "tkv/optimizer.h"

namespace tkv::python {

void BindUpdate(nb::module_& m) {
  nb::class_<Program>(m, "Program", "A parsed update program. Use tensorkv.Program.")
      .def(
          "__init__",
          [](Program* self, const std::string& text) { new (self) Program(Program::Parse(text)); },
          nb::arg("text"))
      .def_prop_ro_static(
          "INSTRUCTIONS_MAX", [](nb::handle) { return Program::kInstructionsMax; },
          "Operations that a program may have.")
      .def_prop_ro_static(
          "STATES_MAX", [](nb::handle) { return Program::kStatesMax; },
          "States that a program may have.")
      .def_prop_ro("name", &Program::name, "The program's name.")
      .def_prop_ro("text", &Program::ToText, "The text form, normalised.")
      .def_prop_ro("states", &Program::states, "Names of the states that are arrays.")
      .def_prop_ro(
          "scalar_states",
          [](const Program& program) {
            std::map<std::string, double> states;
            for (const auto& state : program.scalar_states()) states[state.name] = state.initial;
            return states;
          },
          "States that are scalars, and their values before the first update.")
      .def_prop_ro(
          "params",
          [](const Program& program) {
            std::map<std::string, double> params;
            for (const auto& param : program.params()) params[param.name] = param.value;
            return params;
          },
          "Hyperparameters and their defaults.")
      .def("__repr__", [](const Program& program) { return "<Program " + program.name() + ">"; });

  nb::class_<PyOptimizer>(
      m, "Optimizer",
      "A program with the values of its hyperparameters; stores see changes at once.")
      .def(
          "__init__",
          [](PyOptimizer* self, const Program& program, bool multi_precision, bool lazy) {
            new (self) PyOptimizer{std::make_shared<Optimizer>(program, multi_precision, lazy)};
          },
          nb::arg("program"), nb::arg("multi_precision") = false, nb::arg("lazy") = true)
      .def_static(
          "create",
          [](const std::string& name, const std::map<std::string, double>& params,
             bool multi_precision, bool lazy) {
            return PyOptimizer{Optimizer::Create(name, params, multi_precision, lazy)};
          },
          nb::arg("name"), nb::arg("params") = std::map<std::string, double>(),
          nb::arg("multi_precision") = false, nb::arg("lazy") = true, "A built-in by name.")
      .def_prop_ro(
          "program", [](const PyOptimizer& self) { return self.core->program(); }, "The program.")
      .def(
          "param",
          [](const PyOptimizer& self, const std::string& name) { return self.core->param(name); },
          nb::arg("name"), "The value of a hyperparameter.")
      .def(
          "set_param",
          [](const PyOptimizer& self, const std::string& name, double value) {
            self.core->SetParam(name, value);
          },
          nb::arg("name"), nb::arg("value"), "Changes a hyperparameter.")
      .def(
          "scalar",
          [](const PyOptimizer& self, const std::string& name, double t, double n) {
            return self.core->Scalar(name, t, n);
          },
          nb::arg("name"), nb::arg("t"), nb::arg("n") = 1.0,
          "The value of a scalar of the program in round `t` with `n` contributors.")
      .def(
          "set_multiplier",
          [](const PyOptimizer& self, const std::string& param, nb::handle key, double factor) {
            self.core->SetMultiplier(param, ParseKey(key), factor);
          },
          nb::arg("param"), nb::arg("key").none(), nb::arg("factor"),
          "For `key` the hyperparameter counts `factor` times its value.")
      .def(
          "params_for",
          [](const PyOptimizer& self, nb::handle key) {
            const std::vector<double> values = self.core->ParamsFor(ParseKey(key));
            std::map<std::string, double> params;
            for (size_t i = 0; i < values.size(); ++i) {
              params[self.core->program().params()[i].name] = values[i];
            }
            return params;
          },
          nb::arg("key").none(), "The hyperparameters of a key, its multipliers included.")
      .def(
          "apply",
          [](const PyOptimizer& self, nb::handle key, double round, const NDArray& grad,
             const NDArray& weight, nb::list states, nb::handle master) {
            std::vector<NDArray> arrays;
            for (nb::handle state : states) arrays.push_back(AsArray(state));
            const NDArray wide = master.is_none() ? NDArray() : AsArray(master);
            const KeyView name = ParseKey(key);
            const Unlocked unlocked;
            ApplyUpdate(*self.core, name, round, grad, weight, arrays, wide);
          },
          nb::arg("key").none(), nb::arg("round"), nb::arg("grad"), nb::arg("weight"),
          nb::arg("states"), nb::arg("master").none(),
          "One update of `weight` by `grad`, outside a store.");
}

}  // namespace tkv::python
