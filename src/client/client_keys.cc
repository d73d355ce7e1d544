#include "client/client_keys.h"

#include <algorithm>
#include <iterator>

#include "base/format.h"

namespace tkv {

Error UnevenAt(uint64_t round) {
  return Fail(Code::kFailedPrecondition,
              "the push of round {} by this worker has failed, or was ended with its process, "
              "and parts of this key have it; push the key again first",
              round + 1);
}

void ClientKey::MarkStaleIfGone(const Error& error) {
  const bool is_gone = error.code() == Code::kNotFound || error.code() == Code::kFailedPrecondition;
  if (is_gone && !is_barrier) is_stale = true;
}

void ClientKey::Reset() {
  ClientKey fresh;
  fresh.queue = std::move(queue);
  *this = std::move(fresh);
}

WaitCause ClientKey::WhyHeld() const {
  // A request for the version that a push needs may be under way.
  if (std::ranges::any_of(chunks, &KnownChunk::asked)) return WaitCause::kRound;
  return pulls > 0 ? WaitCause::kPull : WaitCause::kOrder;
}

void ClientKeys::MakeBarrier(const KeyId& id, const std::string& name, ClientKey* key) {
  barriers_.insert(id);
  key->is_barrier = key->is_ready = true;
  key->meta.name = name;
  key->meta.shape = Shape({0});
}

void ClientKeys::EraseStore(uint32_t store) {
  const KeyId barrier = IdOf(InternalKey(store, "barrier"));
  barriers_.erase(barrier);
  for (auto at = keys_.begin(); at != keys_.end();) {
    const bool is_its =
        at->first == barrier || (!at->second.meta.name.empty() && at->second.store() == store);
    at = is_its ? keys_.erase(at) : std::next(at);
  }
}

std::vector<KeyId> ClientKeys::Sorted() const {
  std::vector<KeyId> ids;
  ids.reserve(keys_.size());
  for (const auto& [id, key] : keys_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

void ClientKeys::WakeAll() {
  for (const KeyId& id : Sorted()) ready_.push_back(id);
}

}  // namespace tkv
