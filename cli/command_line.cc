#include "command_line.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "tkv/error.h"

namespace tkv::cli {
namespace {

constexpr const char* kOptionGroup = "Options of stores";

bool TakesValue(const CLI::App& app, const std::string& name) {
  const CLI::Option* const option = app.get_option_no_throw(name);
  return option != nullptr && option->get_items_expected_min() > 0;
}

// Where the command begins among the words: at the first that is no option of the subcommand's and
// no value of one, or behind "--".  The parser never sees the command, because the parser would take
// brackets, empty words and dashes in it for syntax of its own.
size_t BeginOfCommand(const CLI::App& app, const std::vector<std::string>& words) {
  size_t i = 2;
  for (; i < words.size() && words[i].size() > 1 && words[i][0] == '-'; ++i) {
    if (words[i] == "--") break;
    const bool is_long = words[i][1] == '-';
    const std::string name =
        is_long ? words[i].substr(0, words[i].find('=')) : words[i].substr(0, 2);
    if (name.size() == words[i].size() && TakesValue(app, name)) ++i;
  }
  return std::min(i, words.size());
}

// Cuts the command off the words.
std::vector<std::string> TakeCommand(const CLI::App& app, std::vector<std::string>* words) {
  if (words->size() < 2 || (*words)[1] != app.get_name()) return {};
  const auto begin = words->begin() + static_cast<ptrdiff_t>(BeginOfCommand(app, *words));
  const bool is_marked = begin != words->end() && *begin == "--";
  std::vector<std::string> command(begin + static_cast<ptrdiff_t>(is_marked), words->end());
  words->erase(begin, words->end());
  return command;
}

//   throws  kInvalidArgument  the first word names no subcommand
void CheckSubcommand(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.size() < 2 || words[1].empty() || words[1][0] == '-') return;
  std::vector<std::string_view> names;
  std::string list;
  for (const CLI::App* const sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_name() == words[1]) return;
    if (sub->get_group().empty()) continue;
    names.push_back(sub->get_name());
    list += (list.empty() ? "" : ", ") + sub->get_name();
  }
  const std::string hint = DidYouMean(words[1], names);
  throw Error(Code::kInvalidArgument, "there is no command '" + words[1] + "'" +
                                          (hint.empty() ? "; there are " + list : hint));
}

// What a subcommand was given that none of its options takes, with the nearest option.
std::string Unexpected(const CLI::App& app) {
  std::string sentence;
  for (const CLI::App* const sub : app.get_subcommands()) {
    std::vector<std::string> flags;
    for (const CLI::Option* const option : sub->get_options()) {
      for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    }
    const std::vector<std::string_view> names(flags.begin(), flags.end());
    for (const std::string& word : sub->remaining()) {
      const std::string name = word.substr(0, word.find('='));
      sentence += "tkv: " + sub->get_name() + ": '" + word + "' was not expected" +
                  DidYouMean(name, names) + "\n";
    }
  }
  return sentence + "`tkv SUBCOMMAND --help` lists what there is\n";
}

}  // namespace

CommandLine::CommandLine() {
  app_.set_version_flag("--version", std::string("tkv ") + Version());
  app_.require_subcommand(1);
  app_.footer(
      "`tkv launch -n 2 -s 2 python train.py` starts two workers and two servers; `tkv launch "
      "--help` says more");
}

CLI::App* CommandLine::Add(const char* name, const char* help, Run run) {
  CLI::App* const app = app_.add_subcommand(name, help)->footer("");
  commands_.push_back({app, std::move(run)});
  return app;
}

CLI::App* CommandLine::AddHidden(const char* name, const char* help, Run run) {
  return Add(name, help, std::move(run))->group("");
}

void CommandLine::AddOptionFlags(CLI::App* app, const std::string& of) {
  for (const OptionInfo& option : OptionTable()) {
    if (*option.flag == '\0') continue;
    const std::string help = std::string(option.help) + " Sets " + option.environment + of;
    const auto keep = [this, &option](const std::string& text) {
      given_.emplace_back(&option, text);
    };
    if (option.kind != OptionInfo::Kind::kFlag) {
      app->add_option_function<std::string>(option.flag, keep, help)->group(kOptionGroup);
      continue;
    }
    // Also `--deterministic=0`, which counts beside a variable that says 1.
    const auto count = [keep](int64_t value) { keep(std::to_string(std::max<int64_t>(0, value))); };
    app->add_flag_function(option.flag, count, help)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->group(kOptionGroup);
  }
}

void CommandLine::PassOn(CLI::App* app, std::vector<std::string>* command) {
  // For the help text: TakeCommand cuts the command off before the parser sees the words.
  app->add_option("COMMAND", *command, "What each worker runs, passed on byte for byte");
  passing_on_ = app;
  passed_on_ = command;
}

int CommandLine::Execute(std::vector<std::string> words) {
  try {
    Parse(std::move(words));
    return RunChosen();
  } catch (const CLI::ParseError& error) {
    return StatusOf(error);
  } catch (const Error& error) {
    std::fprintf(stderr, "tkv: %s\n", error.what());
    return 2;
  }
}

void CommandLine::Parse(std::vector<std::string> words) {
  if (words.size() == 2 && words[1] == "help") words[1] = "--help";
  CheckSubcommand(app_, words);
  std::vector<std::string> command;
  if (passing_on_ != nullptr) command = TakeCommand(*passing_on_, &words);
  std::vector<const char*> pointers;
  pointers.reserve(words.size());
  for (const std::string& word : words) pointers.push_back(word.c_str());
  app_.parse(static_cast<int>(pointers.size()), pointers.data());
  if (passed_on_ != nullptr) *passed_on_ = std::move(command);
  ApplyOptionFlags();
}

//   throws  kInvalidArgument  a value that does not fit its option
void CommandLine::ApplyOptionFlags() const {
  StoreOptions scratch;
  for (const auto& [option, text] : given_) {
    SetOption(&scratch, option->name, text);
    setenv(option->environment, text.c_str(), 1);
  }
}

int CommandLine::RunChosen() const {
  for (const Command& command : commands_) {
    if (*command.app) return command.run();
  }
  return 0;
}

// The parser's own statuses of usage errors are 105 and the like; here all are 2.
int CommandLine::StatusOf(const CLI::ParseError& error) const {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    std::cerr << Unexpected(app_);
    return 2;
  }
  return app_.exit(error) == 0 ? 0 : 2;
}

}  // namespace tkv::cli
