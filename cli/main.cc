// The command tkv.

#include <csignal>

#include "commands.h"
#include "system.h"

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file at the limit of its size is an error, EFBIG
  tkv::cli::OpenStandardFiles();
  tkv::cli::RaiseFileLimit();
  tkv::cli::CommandLine line;
  tkv::cli::AddCommands(&line);
  return line.Execute({argv, argv + argc});
}
