#include "server/cut_table.h"

#include "base/format.h"

namespace tkv {

std::string CutTable::WhyNot(const SessionId& id) const {
  if (!cutter_ || *cutter_ == id) return {};
  return Format("worker {}{}", cutter_->rank, kIsSaving);
}

const ChunkCut* CutTable::Find(const SessionId& id, const ChunkId& chunk) const {
  if (cutter_ != id) return nullptr;
  const auto found = cuts_.find(chunk);
  return found == cuts_.end() ? nullptr : &found->second;
}

void CutTable::Drop(const SessionId& id, std::optional<uint32_t> store) {
  if (cutter_ != id) return;
  boost::unordered::erase_if(
      cuts_, [&](const auto& entry) { return !store || entry.second.store == *store; });
  if (cuts_.empty()) cutter_.reset();
}

}  // namespace tkv
