#include "command_line.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "exit_status.h"
#include "other_launchers.h"
#include "shape.h"

namespace tkv::cli {
namespace {

bool TakesValue(const CLI::App& app, const std::string& name) {
  const CLI::Option* const option = app.get_option_no_throw(name);
  return option != nullptr && option->get_items_expected_min() > 0;
}

// Returns the index where the command begins: behind "--", or at the first word that is neither an
// option of the subcommand nor the value of one.  The parser never sees the command, because it
// would interpret brackets, empty words and dashes in it.
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

// Cuts the command off the words and returns it.
std::vector<std::string> TakeCommand(const CLI::App& app, std::vector<std::string>* words) {
  if (words->size() < 2 || (*words)[1] != app.get_name()) return {};
  const auto begin = words->begin() + static_cast<ptrdiff_t>(BeginOfCommand(app, *words));
  const bool is_marked = begin != words->end() && *begin == "--";
  std::vector<std::string> command(begin + static_cast<ptrdiff_t>(is_marked), words->end());
  words->erase(begin, words->end());
  return command;
}

// Refuses words of one dash that the parser would read as several options, or as "-n" with the value
// "p" and "-h" with a rest, and options that other launchers have.
//   throws  kInvalidArgument
void CheckOptions(const CLI::App& app, const std::vector<std::string>& words) {
  for (size_t i = 2; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.size() < 2 || word[0] != '-') continue;
    const bool is_long = word[1] == '-';
    const std::string name = word.substr(0, is_long ? word.find('=') : 2);
    const bool is_known = app.get_option_no_throw(name) != nullptr;
    const std::string instead = is_known && (is_long || word.size() == 2) ? "" : InsteadOf(word);
    if (!instead.empty()) {
      throw Error(Code::kInvalidArgument,
                  app.get_name() + ": instead of '" + word + "' use " + instead);
    }
    if (is_known && !is_long && word.size() > 2) {
      if (!TakesValue(app, name)) {
        throw Error(Code::kInvalidArgument, app.get_name() + ": '" + word + "' was not expected");
      }
      if (word[2] == '=' && name != "-x") {
        throw Error(Code::kInvalidArgument, app.get_name() + ": instead of '" + word + "' write '" +
                                                name + ' ' + word.substr(3) + "'");
      }
    }
    if (word.size() == name.size() && TakesValue(app, name)) ++i;
  }
}

//   throws  kInvalidArgument  the first word names no subcommand
void CheckSubcommand(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.size() < 2 || words[1].empty()) return;
  if (words[1][0] == '-') {
    if (words.size() == 2 || app.get_option_no_throw(words[1]) != nullptr) return;
    throw Error(Code::kInvalidArgument,
                "'" + words[1] + "' was not expected before a subcommand; options follow it");
  }
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

// Returns the help's name for the value of an option of the table.
std::string TypeOf(const OptionInfo& option) {
  std::vector<std::string> words;
  for (const std::string_view word : option.words) {
    if (!word.empty()) words.emplace_back(word);
  }
  if (!words.empty()) return OneOf(words);
  std::string type = option.unit[0] == '\0' ? "text" : option.unit;
  std::transform(type.begin(), type.end(), type.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return type;
}

std::string Footer() {
  std::string text =
      "`tkv launch -n 2 -s 2 python train.py` starts two workers and two servers; `tkv launch "
      "--help` says more\n\nExit status:\n";
  for (const ExitStatus& one : kExitStatuses) {
    const std::string status = one.status;
    text += "  " + status + std::string(28 - status.size(), ' ') + one.meaning + "\n";
  }
  text.pop_back();
  return text;
}

}  // namespace

CommandLine::CommandLine() {
  app_.set_version_flag("--version", std::string("tkv ") + Version());
  app_.require_subcommand(1);
  app_.footer(Footer());
}

CLI::App* CommandLine::Add(const char* name, const char* help, Run run) {
  CLI::App* const app = app_.add_subcommand(name, help)->group(heading_)->footer("");
  app->add_flag_function(
         "--json", [](int64_t) {}, "Print JSON, one object in each line, errors too")
      ->disable_flag_override();
  commands_.push_back({app, std::move(run)});
  return app;
}

CLI::App* CommandLine::AddHidden(const char* name, const char* help, std::function<int()> run) {
  CLI::App* const app = app_.add_subcommand(name, help)->group("")->footer("");
  commands_.push_back({app, [run = std::move(run)](Form) { return run(); }});
  return app;
}

void CommandLine::AddOptionFlags(CLI::App* app, const std::string& group) {
  for (const OptionInfo& option : OptionTable()) {
    if (*option.flag == '\0') continue;
    const std::string help = std::string(option.help) + " [" + option.environment + "]";
    const auto keep = [this, &option](const std::string& text) {
      given_.emplace_back(&option, text);
    };
    if (option.kind != OptionInfo::Kind::kFlag) {
      app->add_option_function<std::string>(option.flag, keep, help)
          ->type_name(TypeOf(option))
          ->group(group);
      continue;
    }
    // `--deterministic=0` must also set the variable, because the environment may say 1.
    const auto count = [keep](int64_t value) { keep(std::to_string(std::max<int64_t>(0, value))); };
    app->add_flag_function(option.flag, count, help)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->group(group);
  }
}

void CommandLine::PassOn(CLI::App* app, std::vector<std::string>* command) {
  // For the help text: TakeCommand cuts the command off before the parser sees the words.
  app->add_option("COMMAND", *command, "What each worker runs, passed on byte for byte")
      ->type_name(kCommand);
  passing_on_ = app;
  passed_on_ = command;
}

int CommandLine::Execute(std::vector<std::string> words) {
  int status = kNotDone;
  try {
    Parse(std::move(words));
    status = RunChosen();
  } catch (const CLI::ParseError& error) {
    status = FailToParse(error);
  } catch (const Error& error) {
    Fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    Fail(Code::kResourceExhausted, "there is no memory");
  } catch (const std::exception& error) {
    Fail(Code::kInternal, error.what());
  }
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  std::fprintf(stderr, "tkv: standard output: %s\n", std::strerror(errno));
  return status == kDone ? kNotDone : status;
}

void CommandLine::Parse(std::vector<std::string> words) {
  if (words.size() > 1 && words[1] == "help") {
    words.erase(words.begin() + 1);
    words.insert(words.begin() + (words.size() > 1 ? 2 : 1), "--help");
  }
  std::vector<std::string> command;
  if (passing_on_ != nullptr) command = TakeCommand(*passing_on_, &words);
  const bool is_json = std::find(words.begin(), words.end(), "--json") != words.end();
  form_ = is_json ? Form::kJson : Form::kText;
  CheckSubcommand(app_, words);
  if (passing_on_ != nullptr && words.size() > 1 && words[1] == passing_on_->get_name()) {
    CheckOptions(*passing_on_, words);
  }
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
    if (*command.app) return command.run(form_);
  }
  return 0;
}

void CommandLine::Fail(Code code, const std::string& message) const {
  if (form_ == Form::kText) {
    std::fprintf(stderr, "tkv: %s\n", message.c_str());
    return;
  }
  Print(
      JsonObject("error").Add("code", Name(code)).Add("message", message).Add("status", kNotDone));
}

// Reports a usage error and returns 2; the parser's own statuses are 105 and the like.
int CommandLine::FailToParse(const CLI::ParseError& error) const {
  const bool is_help = error.get_exit_code() == 0;
  if (is_help) return app_.exit(error);
  const bool is_extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  std::string why = is_extra ? Unexpected() : "";
  if (why.empty()) why = error.what();
  Fail(Code::kInvalidArgument, why);
  if (form_ == Form::kText) {
    const auto chosen = app_.get_subcommands();
    const std::string name = chosen.empty() ? "SUBCOMMAND" : chosen.front()->get_name();
    std::fprintf(stderr, "`tkv %s --help` lists what there is\n", name.c_str());
  }
  return kNotDone;
}

// Names the arguments that no option of the subcommand takes, each with the nearest option.
std::string CommandLine::Unexpected() const {
  std::string sentences;
  for (const CLI::App* const sub : app_.get_subcommands()) {
    std::vector<std::string> flags;
    for (const CLI::Option* const option : sub->get_options()) {
      for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    }
    const std::vector<std::string_view> names(flags.begin(), flags.end());
    for (const std::string& word : sub->remaining()) {
      const std::string name = word.substr(0, word.find('='));
      sentences += (sentences.empty() ? "" : "; ") + sub->get_name() + ": '" + word +
                   "' was not expected" + DidYouMean(name, names);
    }
  }
  return sentences;
}

}  // namespace tkv::cli
