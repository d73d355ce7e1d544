#include "manual.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "exit_status.h"
#include "shape.h"
#include "tkv/config.h"
#include "tkv/error.h"

namespace tkv::cli {
namespace {

// Escapes a text for roff.
std::string Escaped(std::string_view text) {
  std::string escaped = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) {
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string Bold(const std::string& text) { return "\\fB" + Escaped(text) + "\\fR"; }
std::string Italic(const std::string& text) { return "\\fI" + Escaped(text) + "\\fR"; }

std::string Section(std::string title) {
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return ".SH " + title + "\n";
}

std::string Entry(const std::string& tag, const std::string& text) {
  return ".TP\n" + tag + "\n" + Escaped(text) + "\n";
}

std::string PageName(const std::string& command) { return "tkv-" + command; }

// Returns the entry of an option, such as "-n, --workers INT".
std::string Entry(const OptionShape& option) {
  std::string tag;
  for (const std::string& name : option.names) {
    tag += (tag.empty() ? "" : ", ") + (option.is_positional ? Italic(name) : Bold(name));
  }
  const bool is_closed = !option.words.empty();
  if (option.takes_value && !option.is_positional) {
    tag += " " + Italic(is_closed ? "WORD" : option.type);
  }
  std::string text = option.help;
  if (is_closed) text += ": one of " + CLI::detail::join(option.words, ", ");
  if (!option.default_text.empty()) text += " (default " + option.default_text + ")";
  return Entry(tag, text);
}

// Returns the arguments and options under the titles of their groups, in the order of the groups.
std::string Options(const std::vector<OptionShape>& options) {
  const auto title_of = [](const OptionShape& option) {
    return option.is_positional ? std::string("Arguments") : option.group;
  };
  std::vector<std::string> titles;
  for (const OptionShape& option : options) {
    if (std::count(titles.begin(), titles.end(), title_of(option)) > 0) continue;
    titles.insert(option.is_positional ? titles.begin() : titles.end(), title_of(option));
  }
  std::string text;
  for (const std::string& title : titles) {
    text += Section(title);
    for (const OptionShape& option : options) {
      if (title_of(option) == title) text += Entry(option);
    }
  }
  return text;
}

std::string Head(const std::string& name, const std::string& help, const std::string& synopsis) {
  return ".TH " + Escaped(name) + " 1 \"\" \"TensorKV " + Version() +
         "\" \"TensorKV\"\n.ad l\n.nh\n" + Section("Name") + Escaped(name) + " \\- " +
         Escaped(help) + "\n" + Section("Synopsis") + synopsis + "\n";
}

std::string ExitStatuses() {
  std::string text = Section("Exit status");
  for (const ExitStatus& one : kExitStatuses) text += Entry(Bold(one.status), one.meaning);
  return text;
}

std::string PageOf(const CommandShape& command) {
  std::string synopsis = Bold("tkv " + command.name) + " [" + Italic("OPTIONS") + "]";
  for (const OptionShape& option : command.options) {
    if (!option.is_positional) continue;
    synopsis += " " + Italic(option.names[0]) + (option.is_repeated ? " ..." : "");
  }
  return Head(PageName(command.name), command.help, synopsis) + Options(command.options) +
         ExitStatuses() + Section("See also") + Bold("tkv") + "(1)\n";
}

std::string PageOf(const CommandShape& root, const std::vector<CommandShape>& commands) {
  const std::string synopsis =
      Bold("tkv") + " " + Italic("COMMAND") + " [" + Italic("OPTIONS") + "]";
  std::string page = Head("tkv", root.help, synopsis) + Section("Commands");
  for (const CommandShape& command : commands) {
    page += Entry(Bold(PageName(command.name)) + "(1)", command.help);
  }
  return page + Options(root.options) + ExitStatuses();
}

void Write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    throw Error(Code::kUnavailable, "manual '" + path.string() + "': " + std::strerror(errno));
  }
}

}  // namespace

int RunManual(const CLI::App& app, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(Code::kUnavailable, "manual '" + folder + "': " + error.message());
  const std::filesystem::path pages = folder;
  const std::vector<CommandShape> commands = ShapesOfSubcommands(app);
  Write(pages / "tkv.1", PageOf(ShapeOf(app), commands));
  for (const CommandShape& command : commands) {
    Write(pages / (PageName(command.name) + ".1"), PageOf(command));
  }
  return kDone;
}

}  // namespace tkv::cli
