#include "job_output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tkv::cli {
namespace {

constexpr int kLauncher = -1;  // the writer of notes

int FileOf(Stream stream) { return stream == Stream::kOut ? STDOUT_FILENO : STDERR_FILENO; }

bool IsStdoutStderr() {
  struct stat out{}, err{};
  return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
         out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

std::string ObjectsOf(const std::string& process, Stream stream, std::string_view lines) {
  std::string objects;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    objects += JsonObject("output")
                   .Add("process", process)
                   .Add("stream", stream == Stream::kOut ? "stdout" : "stderr")
                   .Add("text", lines.substr(0, end))
                   .ToText() +
               "\n";
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return objects;
}

}  // namespace

std::string WhereItIs(const std::string& url, const std::string& token_file) {
  return "the job is at " + url + (token_file.empty() ? "" : ", its token in " + token_file);
}

JobOutput::JobOutput(Form form)
    : form_(form),
      is_one_page_(IsStdoutStderr()),
      pages_{Page(isatty(STDOUT_FILENO) == 1), Page(isatty(STDERR_FILENO) == 1)} {}

JobOutput::~JobOutput() {
  for (const Stream stream : {Stream::kOut, Stream::kErr}) {
    output_.Put(FileOf(stream), PageOf(stream).EndLine());
  }
}

void JobOutput::PassOn(size_t index, const std::string& process, Stream stream,
                       std::string_view text, const Output::Waiting& waiting) {
  if (form_ == Form::kJson) {
    return output_.Put(STDOUT_FILENO, ObjectsOf(process, stream, text), waiting);
  }
  const int writer = static_cast<int>(2 * index) + static_cast<int>(stream);
  output_.Put(FileOf(stream), PageOf(stream).Shown(writer, "[" + process + "] ", text), waiting);
}

void JobOutput::LineIsTyped() {
  for (const Stream stream : {Stream::kOut, Stream::kErr}) {
    if (isatty(FileOf(stream)) == 1) PageOf(stream).LineIsTyped();
  }
}

void JobOutput::Begin(const std::string& url, const std::string& token_file, bool is_wanted) {
  if (form_ == Form::kText) {
    if (is_wanted) Note(WhereItIs(url, token_file));
    return;
  }
  const JsonObject job = JsonObject("job").Add("url", url).Add("token_file", token_file);
  output_.Put(STDOUT_FILENO, job.ToText() + "\n");
}

void JobOutput::Note(const std::string& text) {
  if (form_ == Form::kJson) {
    return output_.Put(STDOUT_FILENO, JsonObject("note").Add("text", text).ToText() + "\n");
  }
  output_.Put(STDERR_FILENO,
              PageOf(Stream::kErr).Shown(kLauncher, "", "tkv launch: " + text + "\n"));
}

void JobOutput::NoteLackOfMemory() noexcept {
  static constexpr std::string_view kLost =
      "tkv launch: no memory for output of a process; some of it is lost\n";
  [[maybe_unused]] const ssize_t told = write(STDERR_FILENO, kLost.data(), kLost.size());
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
  return std::string("output of the processes cannot be passed on: ") + std::strerror(error) +
         "; the job goes on";
}

}  // namespace tkv::cli
