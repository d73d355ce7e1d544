// The command line of a program with subcommands: what there is, and what was given.
//
// Help, errors, completion and manual pages are all made from the one CLI::App that it holds.

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
  // Does what a subcommand is for; the exit status of the process.
  using Run = std::function<int(Form)>;

  CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // A subcommand, in the order in which the help lists them; the caller gives it its options beside
  // --json.
  CLI::App* Add(const char* name, const char* help, Run run);
  // One that people do not call, and that no list has.
  CLI::App* AddHidden(const char* name, const char* help, std::function<int()> run);
  // Gives it the flags of the option table, which set the variables that the processes of the job
  // read, so that all of them have the option, those on other hosts too.
  //   of  whose variables the flags set
  void AddOptionFlags(CLI::App* app, const std::string& of);
  // What follows its options is a command, passed on byte for byte.
  void PassOn(CLI::App* app, std::vector<std::string>* command);

  const CLI::App& app() const { return app_; }
  // The words of main(), parsed and done.  What is wrong is said on stderr; as an object on stdout
  // where --json is among the words.
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
  std::vector<Command> commands_;
  Form form_ = Form::kText;
  std::vector<std::pair<const OptionInfo*, std::string>> given_;  // flags of the option table
  const CLI::App* passing_on_ = nullptr;
  std::vector<std::string>* passed_on_ = nullptr;
};

}  // namespace tkv::cli
