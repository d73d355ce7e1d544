// Converts the keyword options of create() by the table of options.

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/duration.h"
#include "base/format.h"
#include "bindings.h"
#include "raised.h"
#include "tkv/config.h"

namespace tkv::python {
namespace {

using Kind = OptionInfo::Kind;

std::string Shown(nb::handle value) {
  nb::object text = nb::steal(PyObject_Repr(value.ptr()));
  if (!text.is_valid()) ClearError();
  return text.is_valid() ? TextOf(text) : TextOf(value.type());
}

Error WrongType(const char* verb, const std::string& name, nb::handle value, const char* needed) {
  return Fail(Code::kInvalidArgument, "{}: {}={}: {} is needed", verb, name, Shown(value), needed);
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

// Returns the second name of a duration: without the unit, in seconds.
std::string NameInSeconds(const OptionInfo& option) {
  const std::string name = option.name;
  return option.kind == Kind::kDuration ? name.substr(0, name.rfind("_ms")) : std::string();
}

// Returns the UTF-8 of a str.  Throws if the str has unpaired surrogates.
std::string Utf8Of(const char* verb, const std::string& name, nb::handle value) {
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (text != nullptr) return {text, static_cast<size_t>(size)};
  ClearError();
  throw WrongType(verb, name, value, "valid Unicode");
}

// Converts a path object to its text; returns another object unchanged.
nb::object WithoutPath(nb::handle value) {
  if (!AttributeOf(value, "__fspath__").is_valid()) return nb::borrow(value);
  nb::object text = nb::steal(PyOS_FSPath(value.ptr()));
  if (!text.is_valid()) throw nb::python_error();
  return text;
}

// A text that is often a number: `snapshot_every=100` is `snapshot_every='100'`.
constexpr std::string_view kTextThatMayBeWhole = "snapshot_every";

// Converts a value to the text for SetOption.
std::string GivenTextOf(const char* verb, const OptionInfo& option, const std::string& name,
                        nb::handle given) {
  const nb::object value = option.kind == Kind::kText ? WithoutPath(given) : nb::borrow(given);
  const bool is_flag = PyBool_Check(value.ptr());
  if (name == NameInSeconds(option)) {
    const double seconds = is_flag ? -1.0 : PyFloat_AsDouble(value.ptr());
    if (is_flag || (seconds == -1.0 && PyErr_Occurred() != nullptr)) {
      ClearError();
      throw WrongType(verb, name, value, "a number of seconds");
    }
    return Format("{}", MillisecondsFromSeconds(seconds, verb, name).count());
  }
  const bool is_whole = PyLong_Check(value.ptr()) && !is_flag;
  if (is_whole && name == kTextThatMayBeWhole) return TextOf(value);
  const bool fits = option.kind == Kind::kFlag   ? is_flag
                    : option.kind == Kind::kText ? PyUnicode_Check(value.ptr()) != 0
                                                 : is_whole;
  if (!fits) throw WrongType(verb, name, value, NeededFor(option));
  if (is_flag) return value.ptr() == Py_True ? "1" : "0";
  return option.kind == Kind::kText ? Utf8Of(verb, name, value) : TextOf(value);
}

const OptionInfo* Find(const std::string& name) {
  for (const OptionInfo& option : OptionTable()) {
    if (name == option.name || name == NameInSeconds(option)) return &option;
  }
  return nullptr;
}

constexpr std::array<std::string_view, 5> kPlaces = {"rank", "num_workers", "url", "token_file",
                                                     "token"};

std::string PlaceText(const char* verb, const std::string& name, nb::handle value) {
  if (name != "rank" && name != "num_workers") {
    if (PyUnicode_Check(value.ptr()) == 0) throw WrongType(verb, name, value, "a str");
    return Utf8Of(verb, name, value);
  }
  const nb::object number =
      nb::steal(PyBool_Check(value.ptr()) ? nullptr : PyNumber_Index(value.ptr()));
  int overflow = 0;
  const long long whole =
      number.is_valid() ? PyLong_AsLongLongAndOverflow(number.ptr(), &overflow) : 0;
  if (number.is_valid() && overflow == 0) return Format("{}", whole);
  ClearError();
  throw WrongType(verb, name, value, "an int");
}

nb::builtin_exception NoSuchOption(const std::string& name) {
  std::vector<std::string> names = {"bootstrap", "rank", "num_workers", "url", "token_file"};
  for (const OptionInfo& option : OptionTable()) {
    names.emplace_back(option.name);
    names.push_back(NameInSeconds(option));
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  return nb::type_error(
      Format("create() has no option '{}'{}", name, DidYouMean(name, views)).c_str());
}

// The names and texts for SetArguments.
class Arguments {
 public:
  explicit Arguments(const char* verb) : verb_(verb) {}
  void Add(const std::string& name, std::string text) {
    texts_.emplace_back(name, std::move(text));
  }
  void AddOption(const OptionInfo& option, const std::string& name, nb::handle value) {
    for (const auto& [other, text] : texts_) {
      if (other != option.name) continue;
      throw Fail(Code::kInvalidArgument, "{}: {} and {} are one option", verb_, option.name,
                 NameInSeconds(option));
    }
    Add(option.name, GivenTextOf(verb_, option, name, value));
  }
  std::vector<NamedText> Views() const {
    std::vector<NamedText> views;
    views.reserve(texts_.size());
    for (const auto& [name, text] : texts_) views.push_back({name, text});
    return views;
  }

 private:
  const char* verb_;  // the first word of errors
  std::vector<std::pair<std::string, std::string>> texts_;
};

}  // namespace

StoreOptions ParseOptions(const nb::dict& given, const std::string& type) {
  StoreOptions options = OptionsFromEnvironment();
  const char* const verb = type == "connect" ? "connect" : "create";
  Arguments arguments(verb);
  nb::object bootstrap = nb::none();
  // Iterates over a copy, because inspecting the values may run Python code.
  const nb::dict own = nb::steal<nb::dict>(PyDict_Copy(given.ptr()));
  for (auto [key, value] : own) {
    const std::string name = TextOf(key);
    const OptionInfo* const option = Find(name);
    const bool is_place = std::ranges::find(kPlaces, name) != kPlaces.end();
    if (option == nullptr && !is_place && name != "bootstrap") throw NoSuchOption(name);
    if (value.is_none()) continue;
    if (is_place) {
      arguments.Add(name, PlaceText(verb, name, value));
    } else if (option != nullptr) {
      arguments.AddOption(*option, name, value);
    } else if (nb::isinstance<nb::str>(value)) {
      arguments.Add(name, Utf8Of(verb, name, value));
    } else {
      bootstrap = nb::borrow(value);
    }
  }
  StoreHooks hooks = HooksOf(bootstrap);
  options.interrupt = std::move(hooks.interrupt);
  options.log = std::move(hooks.log);
  options.rendezvous = std::move(hooks.rendezvous);
  SetArguments(&options, type, arguments.Views());
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
