// Versions of chunks that are kept while a worker reads them: at most one version of each chunk,
// and all of one incarnation of a worker.

#pragma once

#include <boost/unordered/unordered_map.hpp>
#include <optional>
#include <string>
#include <utility>

#include "server/chunk.h"

namespace tkv {

class CutTable {
 public:
  // Returns the reason why this incarnation may not cut now, or an empty text.
  std::string WhyNot(const SessionId& id) const;
  // Returns the incarnation's cut of a chunk.  Calls `make` for it unless the PULL with this seq, or
  // a later one, has made it already.  WhyNot(id) has to be empty.
  template <typename Make>
  const ChunkCut& Keep(const SessionId& id, const ChunkId& chunk, uint64_t seq, Make make) {
    const auto found = cuts_.find(chunk);
    if (found != cuts_.end() && found->second.seq >= seq) return found->second;
    ChunkCut cut = make();
    cut.seq = seq;
    ChunkCut& kept = cuts_[chunk];
    kept = std::move(cut);
    cutter_ = id;
    return kept;
  }
  // Returns the incarnation's cut of a chunk, or null.
  const ChunkCut* Find(const SessionId& id, const ChunkId& chunk) const;
  // Frees the cuts of an incarnation, of one store or of all.
  void Drop(const SessionId& id, std::optional<uint32_t> store);
  void DropStore(uint32_t store) {
    if (cutter_) Drop(SessionId(*cutter_), store);
  }
  template <typename F>
  void ForEach(F f) const {
    for (const auto& [chunk, cut] : cuts_) f(chunk, cut);
  }

 private:
  friend class StateWriter;  // for checks: compares the states of machines
  std::optional<SessionId> cutter_;
  boost::unordered_map<ChunkId, ChunkCut> cuts_;
};

}  // namespace tkv
