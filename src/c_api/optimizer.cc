// tkv_optimizer_*.

#include "tkv/optimizer.h"

#include <map>

#include "c_api/items.h"

namespace tkv::c_api {
namespace {

// Returns the hyperparameters of the options, and checks the list.
std::span<const tkv_param> ParamsOf(const tkv_optimizer_options& options, const char* verb) {
  return List(options.params, options.param_count, verb, "the list of hyperparameters");
}

tkv_optimizer_options OptionsOf(const tkv_optimizer_options* options, const char* verb) {
  return ReadOr(options, verb, "tkv_optimizer_options");
}

Optimizer& OptimizerOf(const tkv_optimizer* optimizer, const char* verb) {
  return *Core(optimizer, verb, "the optimizer");
}

}  // namespace
}  // namespace tkv::c_api

using namespace tkv::c_api;

tkv_code tkv_optimizer_create(const char* name, const tkv_optimizer_options* options,
                              tkv_optimizer** optimizer, tkv_error** error) {
  return Give(optimizer, error, "optimizer", [&] {
    const char* const verb = "optimizer";
    const std::string_view known = Text(name, verb, "the name");
    const tkv_optimizer_options given = OptionsOf(options, verb);
    std::map<std::string, double> params;
    for (const tkv_param& param : ParamsOf(given, verb)) {
      params[std::string(Text(param.name, verb, "the name of a hyperparameter"))] = param.value;
    }
    return tkv::Optimizer::Create(known, params, given.multi_precision != 0, given.not_lazy == 0);
  });
}

tkv_code tkv_optimizer_from_program(const char* text, const tkv_optimizer_options* options,
                                    tkv_optimizer** optimizer, tkv_error** error) {
  return Give(optimizer, error, "program", [&] {
    const char* const verb = "program";
    const tkv_optimizer_options given = OptionsOf(options, verb);
    auto made = std::make_shared<tkv::Optimizer>(tkv::Program::Parse(Text(text, verb, "the text")),
                                                 given.multi_precision != 0, given.not_lazy == 0);
    for (const tkv_param& param : ParamsOf(given, verb)) {
      made->SetParam(Text(param.name, verb, "the name of a hyperparameter"), param.value);
    }
    return made;
  });
}

tkv_optimizer* tkv_optimizer_retain(tkv_optimizer* optimizer) { return Retain(optimizer); }
void tkv_optimizer_release(tkv_optimizer* optimizer) { Release(optimizer); }

tkv_code tkv_optimizer_param(const tkv_optimizer* optimizer, const char* name, double* value,
                             tkv_error** error) {
  return Put(value, error, "param", [&] {
    return OptimizerOf(optimizer, "param").param(Text(name, "param", "the name"));
  });
}
tkv_code tkv_optimizer_set_param(tkv_optimizer* optimizer, const char* name, double value,
                                 tkv_error** error) {
  return Try(error, [&] {
    OptimizerOf(optimizer, "set_param").SetParam(Text(name, "set_param", "the name"), value);
  });
}
tkv_code tkv_optimizer_set_multiplier(tkv_optimizer* optimizer, const char* name,
                                      const tkv_key* key, double factor, tkv_error** error) {
  return Try(error, [&] {
    const char* const verb = "set_multiplier";
    OptimizerOf(optimizer, verb)
        .SetMultiplier(Text(name, verb, "the name"), KeyOf(key, verb), factor);
  });
}
