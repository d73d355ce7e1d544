// Jobs of this machine, by name.

#include "base/format.h"
#include "tkv/job.h"
#include "transport/address.h"

namespace tkv {
namespace {

// Returns what a message says of a job: its name, and the process to look at.
std::string TextOf(const LocalJob& job) {
  return Format("{} (pid {}): {}", job.id, job.head_pid, job.url);
}

std::string ListOf(const std::vector<LocalJob>& jobs) {
  std::vector<std::string> texts;
  texts.reserve(jobs.size());
  for (const LocalJob& job : jobs) texts.push_back(TextOf(job));
  return Join(texts, "; ");
}

// Returns the jobs of that name: those with this id, else those whose id begins so.  "" names all.
std::vector<LocalJob> JobsNamed(std::string_view name, const std::vector<LocalJob>& jobs) {
  std::vector<LocalJob> exact, beginning;
  for (const LocalJob& job : jobs) {
    if (job.id == name) exact.push_back(job);
    if (job.id.starts_with(name)) beginning.push_back(job);
  }
  return exact.empty() ? beginning : exact;
}

}  // namespace

std::vector<LocalJob> LocalJobs() {
  std::vector<LocalJob> jobs;
  for (const OwnUnixSocket& socket : OwnUnixSockets(kHeadSocket)) {
    Job job;
    job.id = JobOfHeadSocket(socket.name);
    if (job.id.empty()) continue;
    job.head = Format("unix:{}/{}", HostId(), socket.name);
    jobs.push_back({job.id, UrlOf(job), socket.pid});
  }
  return jobs;
}

std::string FindJob(std::string_view name) {
  if (name.empty() && IsLaunched()) {
    const Job job = JobFromEnvironment();
    if (!job.head.empty()) return UrlOf(job);
  }
  const std::vector<LocalJob> all = LocalJobs();
  const std::vector<LocalJob> jobs = JobsNamed(name, all);
  if (jobs.size() == 1) return jobs[0].url;
  if (jobs.size() > 1) {
    throw Fail(Code::kInvalidArgument, "{} jobs{} run on this machine, say which: {}", jobs.size(),
               name.empty() ? std::string() : Format(" '{}'", name), ListOf(jobs));
  }
  if (name.empty()) {
    throw Fail(
        Code::kNotFound,
        "no job: none of your processes on this machine has a head at a Unix socket, and TKV_HEAD "
        "is not set; kv.url of a worker, or the first line of `tkv launch`, says the URL");
  }
  throw Fail(
      Code::kNotFound,
      "no job '{}' of yours has its head at a Unix socket of this machine{}; any other job is "
      "named by its URL, tkv://HOST:PORT/JOB, which kv.url and the first line of `tkv launch` "
      "say",
      name, all.empty() ? std::string() : "; there are " + ListOf(all));
}

}  // namespace tkv
