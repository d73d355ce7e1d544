#include "store/trace_file.h"

#include <unistd.h>

#include "base/format.h"
#include "checkpoint/file.h"

namespace tkv {

KVStore::TraceInfo WriteTraceFile(const std::string& file,
                                  const std::vector<TracedProcess>& processes,
                                  const std::function<std::string(const Span&)>& key_of) {
  checkpoint::CheckPath(file);
  checkpoint::CheckFolderOf(file);
  const std::string text = ChromeTrace(processes, key_of);
  const std::string beside = Format("{}.{}.part", file, getpid());
  checkpoint::RemoveAll(beside);
  try {
    checkpoint::File out = checkpoint::File::Create(beside, file);
    out.Write(std::as_bytes(std::span(text)));
    out.Close();
    checkpoint::Rename(beside, file);
  } catch (...) {
    checkpoint::RemoveAll(beside);
    throw;
  }
  KVStore::TraceInfo info;
  for (const TracedProcess& process : processes) {
    info.spans += process.spans.size();
    info.lost += process.lost;
  }
  return info;
}

}  // namespace tkv
