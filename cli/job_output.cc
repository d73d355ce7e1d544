#include "job_output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace tkv::cli {

std::string JobOutput::Printed(const std::string& process, const std::string& line) const {
  if (form_ == Form::kText) return "[" + process + "] " + line;
  const std::string_view text = std::string_view(line).substr(0, line.find_last_not_of('\n') + 1);
  return JsonObject("output").Add("process", process).Add("text", text).ToText() + "\n";
}

void JobOutput::PassOn(const std::string& process, const std::vector<std::string>& lines,
                       const Output::Waiting& waiting) {
  std::string text;
  for (const std::string& line : lines) text += Printed(process, line);
  output_.Put(STDOUT_FILENO, std::move(text), waiting);
}

void JobOutput::Note(const std::string& text) {
  if (form_ == Form::kText) {
    output_.Put(STDERR_FILENO, "tkv launch: " + text + "\n");
  } else {
    output_.Put(STDOUT_FILENO, JsonObject("note").Add("text", text).ToText() + "\n");
  }
}

void JobOutput::NoteLostLines(const std::string& process) {
  try {
    Note("the launcher has no memory for output of " + process + "; some of it is lost");
  } catch (const std::bad_alloc&) {
    static constexpr std::string_view kLost =
        "tkv launch: no memory for output of a process; some of it is lost\n";
    [[maybe_unused]] const ssize_t told = write(STDERR_FILENO, kLost.data(), kLost.size());
  }
}

void JobOutput::End(int status) {
  if (form_ == Form::kText) return;
  output_.Put(STDOUT_FILENO, JsonObject("end").Add("status", status).ToText() + "\n");
}

std::string JobOutput::TakeFailure() {
  const int error = output_.TakeFailure();
  if (error == 0) return {};
  is_lost_ = is_lost_ || error != EPIPE;  // EPIPE: the reader wants no more
  if (std::exchange(has_failed_, true)) return {};
  return std::string("what the processes say cannot be passed on: ") + std::strerror(error);
}

}  // namespace tkv::cli
