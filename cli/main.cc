// The command tkv.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "tkv/config.h"
#include "tkv/error.h"

int main(int argc, char** argv) {
  CLI::App app{"TensorKV: a store for sharing tensors"};
  app.set_version_flag("--version", std::string("tkv ") + tkv::Version());
  app.require_subcommand(1);
  CLI::App* const config =
      app.add_subcommand("config", "Show what this build is and the options in force");
  CLI11_PARSE(app, argc, argv);
  try {
    if (*config) std::fputs(tkv::ConfigText().c_str(), stdout);
  } catch (const tkv::Error& error) {
    std::fprintf(stderr, "tkv: %s\n", error.what());
    return 2;
  }
  return 0;
}
