// The command line of a program with subcommands: its definition and the arguments given.
//
// A single CLI::App holds the definition.  Help, errors, completion and manual pages are all made
// from it.

#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "json.h"
#include "tkv/config.h"
#include "tkv/error.h"

namespace tkv::cli {

class CommandLine {
 public:
  // Runs a subcommand and returns the exit status of the process.
  using Run = std::function<int(Form)>;

  CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Begins a group of subcommands, which the help lists under this heading.
  void BeginGroup(const char* heading) { heading_ = heading; }
  // Adds a subcommand to the group.  The help lists the subcommands of a group in the order of the
  // calls.  Every subcommand has the option --json; the caller adds the others.
  CLI::App* Add(const char* name, const char* help, Run run);
  // Adds a subcommand for internal use, which no list shows.
  CLI::App* AddHidden(const char* name, const char* help, std::function<int()> run);
  // Adds flags for the options of the option table to a subcommand.  A flag sets the variable of
  // its option, so that every process of the job has the option, on other hosts too.
  //   group  the heading of these flags in the help: names the processes whose variables they set
  void AddOptionFlags(CLI::App* app, const std::string& group);
  // Makes everything behind the subcommand's own options a command, kept byte for byte.
  void PassOn(CLI::App* app, std::vector<std::string>* command);

  const CLI::App& app() const { return app_; }
  // Parses the arguments of main(), runs the subcommand and returns the exit status.  Errors go to
  // stderr, or as an object to stdout if --json is among the arguments.
  int Execute(std::vector<std::string> words);

 private:
  struct Command {
    CLI::App* app;
    Run run;
  };

  void Parse(std::vector<std::string> words);
  void ApplyOptionFlags() const;
  int RunChosen() const;
  void Fail(Code code, const std::string& message) const;
  int FailToParse(const CLI::ParseError& error) const;
  std::string Unexpected() const;

  CLI::App app_{"TensorKV: a store for sharing tensors"};
  const char* heading_ = "Subcommands";
  std::vector<Command> commands_;
  Form form_ = Form::kText;
  std::vector<std::pair<const OptionInfo*, std::string>> given_;  // flags of the option table
  const CLI::App* passing_on_ = nullptr;
  std::vector<std::string>* passed_on_ = nullptr;
};

}  // namespace tkv::cli
