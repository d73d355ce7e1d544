// The options of create(): keywords, and the table that says what they are.

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "base/duration.h"
#include "base/format.h"
#include "bindings.h"
#include "tkv/config.h"

namespace tkv::python {
namespace {

using Kind = OptionInfo::Kind;
using Scope = OptionInfo::Scope;

std::string Shown(nb::handle value) { return nb::cast<std::string>(nb::repr(value)); }

Error WrongType(const std::string& name, nb::handle value, const char* needed) {
  return Fail(Code::kInvalidArgument, "create: {}={}: {} is needed", name, Shown(value), needed);
}

const char* NeededFor(const OptionInfo& option) {
  switch (option.kind) {
    case Kind::kNumber:
    case Kind::kDuration:
      return "an int";
    case Kind::kFlag:
      return "True or False";
    case Kind::kText:
      break;
  }
  return "a str";
}

// Durations have a second name without the unit, which takes seconds.
std::string NameInSeconds(const OptionInfo& option) {
  const std::string name = option.name;
  return option.kind == Kind::kDuration ? name.substr(0, name.rfind("_ms")) : std::string();
}

// What a path stands for, and anything else as it is.
nb::object WithoutPath(nb::handle value) {
  if (!nb::hasattr(value, "__fspath__")) return nb::borrow(value);
  nb::object text = nb::steal(PyOS_FSPath(value.ptr()));
  if (!text.is_valid()) throw nb::python_error();
  return text;
}

// What SetOption takes.
std::string TextOf(const OptionInfo& option, const std::string& name, nb::handle given) {
  const nb::object value = option.kind == Kind::kText ? WithoutPath(given) : nb::borrow(given);
  const bool is_flag = PyBool_Check(value.ptr());
  if (name == NameInSeconds(option)) {
    double seconds = 0;
    if (is_flag || !nb::try_cast(value, seconds)) {
      throw WrongType(name, value, "a number of seconds");
    }
    return Format("{}", MillisecondsFromSeconds(seconds, "create", name).count());
  }
  const bool is_whole = PyLong_Check(value.ptr()) && !is_flag;
  const bool fits = option.kind == Kind::kFlag   ? is_flag
                    : option.kind == Kind::kText ? PyUnicode_Check(value.ptr()) != 0
                                                 : is_whole;
  if (!fits) throw WrongType(name, value, NeededFor(option));
  if (is_flag) return value.ptr() == Py_True ? "1" : "0";
  return nb::cast<std::string>(nb::str(value));
}

const OptionInfo* Find(const std::string& name) {
  for (const OptionInfo& option : OptionTable()) {
    if (name == option.name || name == NameInSeconds(option)) return &option;
  }
  return nullptr;
}

int Place(const std::string& name, nb::handle value) {
  int number = 0;
  if (PyBool_Check(value.ptr()) || !nb::try_cast(value, number)) {
    throw WrongType(name, value, "an int");
  }
  if (number < 0) {
    throw Fail(Code::kInvalidArgument, "create: {}={}: a whole number is needed", name, number);
  }
  return number;
}

nb::builtin_exception NoSuchOption(const std::string& name) {
  std::vector<std::string> names = {"bootstrap", "rank", "num_workers"};
  for (const OptionInfo& option : OptionTable()) {
    names.emplace_back(option.name);
    names.push_back(NameInSeconds(option));
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  return nb::type_error(
      Format("create() has no option '{}'{}", name, DidYouMean(name, views)).c_str());
}

Scope ScopeOf(const std::string& type, const StoreOptions& options) {
  if (IsLocal(type)) return Scope::kAny;
  return options.bootstrap == "self" ? Scope::kDistributed : Scope::kProcesses;
}

void CheckScope(const OptionInfo& option, const std::string& text, const std::string& type,
                Scope scope) {
  if (option.scope <= scope || text == option.default_text) return;
  throw Fail(Code::kInvalidArgument, "create '{}': {}={} has no effect: it is an option of {}",
             type, option.name, text,
             scope == Scope::kAny ? "distributed stores" : "jobs of several processes");
}

// How processes find each other is for stores of several.
void CheckNoBootstrap(const std::string& type, nb::handle bootstrap, const StoreOptions& options) {
  const char* given = nullptr;
  if (options.num_workers != 0) given = "num_workers";
  if (options.rank >= 0) given = "rank";
  if (!bootstrap.is_none()) given = "bootstrap";
  if (given == nullptr) return;
  throw Fail(Code::kInvalidArgument,
             "create '{}': {} has no effect: it is an option of distributed stores", type, given);
}

using Texts = std::vector<std::pair<const OptionInfo*, std::string>>;

void AddText(const OptionInfo& option, const std::string& name, nb::handle value, Texts* texts) {
  for (const auto& [other, text] : *texts) {
    if (other != &option) continue;
    throw Fail(Code::kInvalidArgument, "create: {} and {} are one option", option.name,
               NameInSeconds(option));
  }
  texts->emplace_back(&option, TextOf(option, name, value));
}

}  // namespace

StoreOptions ParseOptions(const nb::dict& given, const std::string& type) {
  StoreOptions options = OptionsFromEnvironment();
  Texts texts;
  nb::object bootstrap = nb::none();
  // A copy, because what is looked at may run Python code.
  const nb::dict own = nb::steal<nb::dict>(PyDict_Copy(given.ptr()));
  for (auto [key, value] : own) {
    const std::string name = nb::cast<std::string>(key);
    const OptionInfo* const option = Find(name);
    const bool is_place = name == "rank" || name == "num_workers";
    if (option == nullptr && !is_place && name != "bootstrap") throw NoSuchOption(name);
    if (value.is_none()) continue;
    if (is_place) {
      (name == "rank" ? options.rank : options.num_workers) = Place(name, value);
    } else if (option == nullptr) {
      bootstrap = nb::borrow(value);
    } else {
      AddText(*option, name, value, &texts);
    }
  }
  if (nb::isinstance<nb::str>(bootstrap)) options.bootstrap = nb::cast<std::string>(bootstrap);
  StoreHooks hooks = HooksOf(bootstrap);
  options.interrupt = std::move(hooks.interrupt);
  options.log = std::move(hooks.log);
  options.rendezvous = std::move(hooks.rendezvous);
  for (const auto& [option, text] : texts) {
    try {
      SetOption(&options, option->name, text);
    } catch (const Error& error) {
      throw Fail(error.code(), "create: {}", error.what());
    }
    CheckScope(*option, text, type, ScopeOf(type, options));
  }
  if (IsLocal(type)) CheckNoBootstrap(type, bootstrap, options);
  return options;
}

void BindOptions(nb::module_& m) {
  m.def("is_distributed", &IsDistributed, nb::arg("type"),
        "Returns whether a store of that type has several workers.");
  m.def("is_async", &IsAsync, nb::arg("type"),
        "Returns whether keys of a store of that type are asynchronous.");
  m.def(
      "nearest",
      [](const std::string& word, const std::vector<std::string>& names) {
        const std::vector<std::string_view> views(names.begin(), names.end());
        const std::string hint = DidYouMean(word, views);
        const size_t begin = hint.find('\'');
        return begin == std::string::npos ? ""
                                          : hint.substr(begin + 1, hint.rfind('\'') - begin - 1);
      },
      nb::arg("word"), nb::arg("names"), "Returns the name that is near to a word, or ''.");
  m.def(
      "option_table",
      [] {
        nb::list rows;
        for (const OptionInfo& option : OptionTable()) {
          const char* const kinds[] = {"number", "duration", "flag", "text"};
          const char* const scopes[] = {"any", "distributed", "processes"};
          nb::dict row;
          row["name"] = option.name;
          row["seconds"] = NameInSeconds(option);
          row["environment"] = option.environment;
          row["flag"] = option.flag;
          row["unit"] = option.unit;
          row["default"] = option.default_text;
          row["help"] = option.help;
          row["kind"] = kinds[static_cast<size_t>(option.kind)];
          row["scope"] = scopes[static_cast<size_t>(option.scope)];
          rows.append(row);
        }
        return rows;
      },
      "Returns the table of options, a dict for each.");
  m.def(
      "options_in_force",
      [](const std::string& type, const nb::dict& given) {
        const StoreOptions options = CheckedOptions(ParseOptions(given, type));
        nb::dict texts;
        for (const OptionInfo& option : OptionTable()) {
          texts[option.name] = OptionText(options, option.name);
        }
        return texts;
      },
      nb::arg("type"), nb::arg("options"),
      "Returns what a store of that type would have for its options, as texts.");
}

}  // namespace tkv::python
