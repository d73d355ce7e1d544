#include "completion.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

#include "exit_status.h"
#include "quoted.h"
#include "shape.h"
#include "tkv/error.h"

namespace tkv::cli {
namespace {

using Texts = std::vector<std::string>;

std::string Join(const Texts& texts, const std::string& separator = " ") {
  return CLI::detail::join(texts, separator);
}

// Returns the part of an option's help that fits in a list of options.
std::string FirstSentence(const std::string& help) {
  const size_t end = std::min(help.find(". "), help.size());
  std::string sentence = help.substr(0, end);
  if (sentence.ends_with('.')) sentence.pop_back();
  return sentence;
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

Texts NamesOf(const CommandShape& command, bool with_values_only) {
  Texts names;
  for (const OptionShape& option : command.options) {
    if (option.is_positional || (with_values_only && !option.takes_value)) continue;
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

// ---- bash

// Returns the bash code that offers values for an option; ":" offers nothing.
std::string BashOffer(const OptionShape& option) {
  if (!option.words.empty()) return "_tkv_offer -W " + Quoted(Join(option.words));
  if (option.type == kFile) return "_tkv_offer_paths -f";
  if (option.type == kFolder) return "_tkv_offer_paths -d";
  if (option.type == kCommand) return "_tkv_offer_command";
  return ":";
}

// Returns the options of a subcommand, those with a value, and `passes_on` if a command with
// options of its own follows them.
std::string BashOptions(const CommandShape& command) {
  const bool passes_on = std::any_of(command.options.begin(), command.options.end(),
                                     [](const OptionShape& one) { return one.type == kCommand; });
  return "    " + command.name + ")\n      options=" + Quoted(Join(NamesOf(command, false))) +
         "\n      valued=" + Quoted(" " + Join(NamesOf(command, true)) + " ") +
         (passes_on ? "\n      passes_on=1" : "") + "\n      ;;\n";
}

// Returns the bash code that offers values for each option of a subcommand, and its positional
// words.
std::string BashValues(const CommandShape& command) {
  std::string text;
  for (const OptionShape& option : command.options) {
    if (!option.is_positional && !option.takes_value) continue;
    for (const std::string& name : option.names) {
      const std::string what = option.is_positional ? "word" : name;
      text.append("    ").append(Quoted(command.name + " " + what)).append(") ");
      text.append(BashOffer(option)).append(" ;;\n");
    }
  }
  return text;
}

constexpr const char* kBashHead =
    R"(# Completion of tkv for bash, made by `tkv completion bash`.  To have it:
#   source <(tkv completion bash)

_tkv_offer() { mapfile -t COMPREPLY < <(compgen "$@" -- "$word"); }
_tkv_offer_paths() {
  compopt -o filenames 2>/dev/null
  _tkv_offer "$1"
}
# The first word of a command is a program, the others may be files.
_tkv_offer_command() {
  if [ "${behind:-$COMP_CWORD}" = "$COMP_CWORD" ]; then _tkv_offer -c; else _tkv_offer_paths -f; fi
}
# behind: which word is the first behind the options and their values; empty: none before this one.
_tkv_find_behind() {
  local i=2
  while [ "$i" -lt "$COMP_CWORD" ]; do
    case ${COMP_WORDS[i]} in
      --) behind=$((i + 1)) && return ;;
      -?*) ;;
      *) behind=$i && return ;;
    esac
    if [ "${COMP_WORDS[i+1]}" = = ]; then
      i=$((i + 2))
    else
      case $valued in *" ${COMP_WORDS[i]} "*) i=$((i + 1)) ;; esac
    fi
    i=$((i + 1))
  done
}

_tkv() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
  # bash divides --name=value in three.
  if [ "$word" = = ]; then
    word=
  elif [ "$before" = = ]; then
    before=${COMP_WORDS[COMP_CWORD-2]}
  fi
  local options= valued= passes_on= behind=
  COMPREPLY=()
)";

constexpr const char* kBashMiddle = R"(    *) return ;;
  esac
  [ -z "$passes_on" ] || _tkv_find_behind
  if [ -n "$behind" ] || [[ "$valued" != *" $before "* ]]; then
    if [ -z "$behind" ] && [[ "$word" = -* ]]; then
      _tkv_offer -W "$options"
      return
    fi
    before=word
  fi
  case "${COMP_WORDS[1]} $before" in
)";

std::string BashScript(const CommandShape& root, const std::vector<CommandShape>& commands) {
  Texts subcommands;
  std::string options, values;
  for (const CommandShape& command : commands) {
    subcommands.push_back(command.name);
    options += BashOptions(command);
    values += BashValues(command);
  }
  const std::string first = Quoted(Join(subcommands) + " " + Join(NamesOf(root, false)));
  std::string text = kBashHead;
  text += "  if [ \"$COMP_CWORD\" = 1 ]; then\n    _tkv_offer -W " + first;
  text += "\n    return\n  fi\n  case ${COMP_WORDS[1]} in\n" + options;
  return text + kBashMiddle + values + "  esac\n}\n\ncomplete -F _tkv tkv\n";
}

// ---- zsh

std::string ZshAction(const OptionShape& option) {
  if (!option.words.empty()) return "(" + Join(option.words) + ")";
  if (option.type == kFile) return "_files";
  if (option.type == kFolder) return "_files -/";
  return "";
}

std::string ZshSpec(const OptionShape& option) {
  if (option.is_positional && option.type == kCommand) return Quoted("*::command:_normal");
  const std::string value = option.type + ":" + ZshAction(option);
  if (option.is_positional) return Quoted((option.is_repeated ? "*:" : "1:") + value);
  std::string help = FirstSentence(option.help);
  for (const char* const special : {"\\", "[", "]", ":"}) {
    help = Replaced(help, special, std::string("\\") + special);
  }
  const std::string tail = "[" + help + "]" + (option.takes_value ? ":" + value : "");
  const std::string others = option.is_repeated ? "*" : "(" + Join(option.names) + ")";
  Texts specs;
  for (const std::string& name : option.names) {
    const bool is_long = name.starts_with("--");
    const char* const joined = !option.takes_value ? "" : is_long ? "=" : "+";
    std::string spec = others;
    specs.push_back(Quoted(spec.append(name).append(joined).append(tail)));
  }
  return Join(specs, " ");
}

std::string ZshScript(const CommandShape& root, const std::vector<CommandShape>& commands) {
  const auto specs = [](const CommandShape& command) {
    std::string text;
    for (const OptionShape& option : command.options) {
      text.append(" \\\n        ").append(ZshSpec(option));
    }
    return text;
  };
  std::string list, cases;
  for (const CommandShape& command : commands) {
    list.append("    ").append(Quoted(command.name + ":" + command.help)).append("\n");
    cases.append("    ").append(command.name).append(")\n      _arguments -s -S");
    cases.append(specs(command)).append("\n      ;;\n");
  }
  return "#compdef tkv\n"
         "# Completion of tkv for zsh, made by `tkv completion zsh`.  To have it:\n"
         "#   source <(tkv completion zsh)\n\n"
         "_tkv() {\n  local -a subcommands=(\n" +
         list +
         "  )\n  if (( CURRENT == 2 )); then\n    _describe subcommand subcommands\n"
         "    _arguments -s -S" +
         specs(root) +
         "\n    return\n  fi\n  local subcommand=$words[2]\n  shift words\n  (( CURRENT-- ))\n"
         "  case $subcommand in\n" +
         cases + "  esac\n}\n\n" +
         "if [ \"$funcstack[1]\" = _tkv ]; then\n  _tkv \"$@\"\nelse\n  compdef _tkv tkv\nfi\n";
}

// ---- fish

std::string FishQuoted(const std::string& text) {
  std::string quoted = "'";
  return quoted.append(Replaced(Replaced(text, "\\", "\\\\"), "'", "\\'")).append("'");
}

std::string FishValue(const OptionShape& option) {
  if (!option.words.empty()) return " -xa " + FishQuoted(Join(option.words));
  if (option.type == kFile) return " -rF";
  if (option.type == kFolder) return " -xa '(__fish_complete_directories)'";
  if (option.type == kCommand) return " -xa '(__fish_complete_command)'";
  return option.takes_value && !option.is_positional ? " -x" : "";
}

std::string FishLine(const std::string& condition, const OptionShape& option) {
  std::string line = "complete -c tkv -n " + FishQuoted(condition);
  if (!option.is_positional) {
    for (const std::string& name : option.names) {
      line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    line += " -d " + FishQuoted(FirstSentence(option.help));
  }
  return line + FishValue(option) + "\n";
}

std::string FishScript(const CommandShape& root, const std::vector<CommandShape>& commands) {
  std::string text =
      "# Completion of tkv for fish, made by `tkv completion fish`.  To have it:\n"
      "#   tkv completion fish | source\n\ncomplete -c tkv -f\n";
  for (const CommandShape& command : commands) {
    text += "complete -c tkv -n __fish_use_subcommand -a " + command.name + " -d " +
            FishQuoted(command.help) + "\n";
  }
  for (const OptionShape& option : root.options) {
    text += FishLine("__fish_use_subcommand", option);
  }
  for (const CommandShape& command : commands) {
    for (const OptionShape& option : command.options) {
      text += FishLine("__fish_seen_subcommand_from " + command.name, option);
    }
  }
  return text;
}

struct Shell {
  const char* name;
  std::string (*script)(const CommandShape& root, const std::vector<CommandShape>& commands);
};

constexpr std::array<Shell, 3> kShells = {
    {{"bash", BashScript}, {"zsh", ZshScript}, {"fish", FishScript}}};

}  // namespace

std::vector<std::string> Shells() {
  Texts names;
  for (const Shell& shell : kShells) names.emplace_back(shell.name);
  return names;
}

int RunCompletion(const CLI::App& app, const std::string& shell, Form form) {
  const auto* const found = std::find_if(kShells.begin(), kShells.end(),
                                         [&](const Shell& one) { return shell == one.name; });
  if (found == kShells.end()) {
    throw Error(Code::kInvalidArgument,
                "completion: there is no shell '" + shell + "'; there are " + Join(Shells(), ", "));
  }
  const std::string script = found->script(ShapeOf(app), ShapesOfSubcommands(app));
  if (form == Form::kJson) {
    Print(JsonObject("script").Add("shell", shell).Add("text", script));
  } else {
    std::fputs(script.c_str(), stdout);
  }
  return kDone;
}

}  // namespace tkv::cli
