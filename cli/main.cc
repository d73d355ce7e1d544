// The command tkv.

#include "commands.h"
#include "system.h"

int main(int argc, char** argv) {
  tkv::cli::OpenStandardFiles();
  tkv::cli::CommandLine line;
  tkv::cli::AddCommands(&line);
  return line.Execute({argv, argv + argc});
}
