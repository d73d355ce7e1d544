#include "dist/saving.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <unordered_map>

#include "base/duration.h"
#include "base/format.h"
#include "base/start_thread.h"
#include "base/wait.h"
#include "checkpoint/checksum.h"
#include "checkpoint/search.h"
#include "store/checks.h"

namespace tkv {

// A source of parts that requests the next ones while one is written.
class Saving::KeptParts final : public PartSource {
 public:
  static constexpr size_t kAheadBytes = size_t{8} << 20;
  static constexpr size_t kRowsBytes = size_t{4} << 20;  // the size of one request for rows
  static_assert(ChunkState::kIds == checkpoint::kIdsPart &&
                ChunkState::kNotes == checkpoint::kNotesPart &&
                ChunkState::kCandidates == checkpoint::kCandidatesPart &&
                ChunkState::kCandidateNotes == checkpoint::kCandidateNotesPart);

  KeptParts(const Saving& saving, std::function<void()> interrupt)
      : saving_(saving),
        interrupt_(std::move(interrupt)),
        items_(checkpoint::LayoutOf(saving.keys_, UINT64_MAX).items) {}
  ~KeptParts() override {
    for (const Reading& reading : ahead_) saving_.worker_->calls().Abandon(reading.call);
  }

  std::span<const std::byte> Next(const checkpoint::Item& /*item*/) override {
    if (now_.call != nullptr) bytes_ahead_ -= now_.buffer.bytes();
    now_ = {};
    while (next_.item < items_.size() && (ahead_.empty() || bytes_ahead_ < kAheadBytes)) Begin();
    now_ = ahead_.front();
    ahead_.pop_front();
    now_.call->Wait(Saturated(saving_.options_.patience) +
                    Saturated(saving_.options_.server_patience));
    const auto ended = saving_.worker_->calls().TakeOwners();
    return {static_cast<const std::byte*>(now_.buffer.HostData()), now_.buffer.bytes()};
  }

 private:
  struct Reading {
    CallPtr call;
    NDArray buffer;
  };

  // The position of the next request: a part, or some of its rows.
  struct Position {
    size_t item = 0;
    uint64_t row = 0;
  };

  // Returns the rows of the next request and advances the position.  Returns no rows for a part
  // that is read at once.
  RowRange TakeRows(const checkpoint::Item& item, size_t* bytes) {
    const uint64_t count = checkpoint::RowsOf(saving_.keys_[item.key], item.part);
    *bytes = item.tensor.bytes();
    if (count == 0) {
      ++next_.item;
      return {};
    }
    const size_t row_bytes = *bytes / count;
    RowRange rows{next_.row, 0};
    rows.count =
        std::min<uint64_t>(std::max<size_t>(1, kRowsBytes / row_bytes), count - rows.first);
    *bytes = rows.count * row_bytes;
    next_.row += rows.count;
    if (next_.row == count) next_ = {next_.item + 1, 0};
    return rows;
  }

  void Begin() {
    const checkpoint::Item& item = items_[next_.item];
    const Source& source = saving_.sources_[item.key];
    Reading reading;
    size_t bytes = 0;
    const RowRange rows = TakeRows(item, &bytes);
    reading.buffer = NDArray::Empty({static_cast<int64_t>(bytes)}, DType::kU8);
    Prefill(item, source, reading.buffer);
    reading.call = Worker::NewCall(saving_.worker_, saving_.verb_, saving_.store_, interrupt_);
    Operation read;
    read.verb = saving_.verb_;
    read.key = source.name;
    read.store = saving_.store_;
    // After all requests for which the job waits.
    read.priority = INT32_MIN;
    read.patience = Saturated(saving_.options_.patience).count();
    Operation::Read what{source.meta, source.states, item.part, rows, {}};
    what.pull.out = {static_cast<std::byte*>(reading.buffer.HostData()), reading.buffer.bytes(),
                     reading.buffer.storage()};
    reading.call->targets.push_back(what.pull.out.bytes());
    read.request = std::move(what);
    bytes_ahead_ += reading.buffer.bytes();
    std::vector<Operation> operations;
    operations.push_back(std::move(read));
    saving_.worker_->calls().Launch(reading.call, std::move(operations));
    ahead_.push_back(std::move(reading));
  }

  // Fills the buffer with initial states, because chunks without an update have no states yet.
  void Prefill(const checkpoint::Item& item, const Source& source, const NDArray& buffer) {
    const auto has_it = [&](const ChunkState& state) { return state.HasPart(item.part); };
    if (std::all_of(source.states->begin(), source.states->end(), has_it)) return;
    std::memset(buffer.HostData(), 0, buffer.bytes());
    const SavedKey& key = saving_.keys_[item.key];
    const uint64_t scalar = item.part - checkpoint::kStateParts - key.arrays.size();
    // True for the parts of rows too, which have no initial scalar.
    if (item.part < checkpoint::kStateParts || scalar >= key.scalars.size()) return;
    const double initial = Program::Parse(key.program.text).scalar_states()[scalar].initial;
    auto* const values = static_cast<double*>(buffer.HostData());
    std::fill(values, values + source.states->size(), initial);
  }

  const Saving& saving_;
  const std::function<void()> interrupt_;
  const std::vector<checkpoint::Item> items_;
  Position next_;
  size_t bytes_ahead_ = 0;
  std::deque<Reading> ahead_;
  Reading now_;
};

Saving::~Saving() {
  if (thread_.joinable())
    // The thread holds this object, so this is the thread itself.
    thread_.detach();
}

// Returns true if the newest snapshot of the folder has all that this save would write.
bool Saving::IsInNewest(const std::function<void()>& interrupt) const {
  const auto is_untouched = [](const SavedKey& key) {
    const auto is_zero = [](uint64_t updates) { return updates == 0; };
    return key.round == 0 && std::all_of(key.updates.begin(), key.updates.end(), is_zero);
  };
  std::optional<checkpoint::Reader> newest;
  try {
    if (stores_.size() == 1) {
      newest = checkpoint::FindStore(path_, store_);
    } else {
      newest = checkpoint::Open(path_);
    }
  } catch (const Error& error) {
    if (error.code() != Code::kNotFound) return false;
  }
  if (!newest) return !has_replaced_ && std::all_of(keys_.begin(), keys_.end(), is_untouched);
  std::unordered_map<std::string, size_t> saved;
  for (size_t i = 0; i < newest->keys().size(); ++i) {
    const SavedKey& key = newest->keys()[i];
    saved.emplace(CanonicalKey(key.store, key.key.view()), i);
  }
  std::vector<size_t> positions;  // of the keys in the newest snapshot
  for (size_t i = 0; i < keys_.size(); ++i) {
    const auto found = saved.find(sources_[i].name);
    if (found == saved.end() || newest->keys()[found->second] != keys_[i]) return false;
    positions.push_back(found->second);
  }
  const auto is_of_these = [&](const SavedKey& key) { return stores_.contains(key.store); };
  const auto count = std::ranges::count_if(newest->keys(), is_of_these);
  if (has_erased_ && static_cast<size_t>(count) != keys_.size()) return false;
  return HasSameParts(*newest, positions, interrupt);
}

// Compares the checksums of all parts.  Equal rounds do not make values equal: another job, another
// key of the same name, an assign, imported rows or a load may have given the keys these values.
bool Saving::HasSameParts(const checkpoint::Reader& newest, const std::vector<size_t>& positions,
                          const std::function<void()>& interrupt) const {
  KeptParts source(*this, interrupt);
  for (const checkpoint::Item& item : checkpoint::LayoutOf(keys_, UINT64_MAX).items) {
    checkpoint::Checksum check;
    uint64_t done = 0;
    do {
      if (cancellation_.is_cancelled()) throw Error(cancelled_);
      const std::span<const std::byte> bytes = source.Next(item);
      check.Add(bytes);
      done += bytes.size();
    } while (done < item.tensor.bytes());
    if (check.Digits() != newest.ChecksumOf(positions[item.key], item.part)) return false;
  }
  return true;
}

std::string Saving::Write(const std::function<void()>& interrupt) {
  std::string path;
  try {
    path = Named(verb_.c_str(), [&] {
      if (only_if_new_ && (is_saved_ || IsInNewest(interrupt))) return std::string();
      KeptParts source(*this, interrupt);
      StoreOptions options = options_;
      options.interrupt = interrupt;
      return WriteSnapshot(path_, parts_, keys_, &source, options, &cancellation_);
    });
  } catch (const Error& error) {
    Release();
    End(error);
    throw;
  } catch (const std::bad_alloc&) {
    Release();
    End(no_memory_);
    throw;
  } catch (...) {  // interrupted
    Release();
    End(cancelled_);
    throw;
  }
  Release();
  End(std::nullopt, path);
  return path;
}

void Saving::Start(const std::shared_ptr<Saving>& saving) {
  const auto write = [saving] {
    // On Linux the priority belongs to one thread.  The writer only uses cores that the job leaves
    // idle.
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 10);
    try {
      saving->Write({});  // signals are for the calling thread
    } catch (const std::exception& error) {
      static_cast<void>(error);  // kept for `failure` and `Wait`
    }
  };
  try {
    std::lock_guard lock(saving->stopping_);
    saving->thread_ = StartThread("write a snapshot with", write);
  } catch (const Error& error) {
    saving->Release();
    saving->End(error);
    throw;
  } catch (const std::exception&) {  // no memory for the thread's work
    saving->Release();
    saving->End(saving->no_memory_);
    throw;
  }
}

void Saving::Release() noexcept {
  try {
    std::vector<Operation> operations;
    for (const uint32_t store : stores_) {
      Operation& release = operations.emplace_back();
      release.request = Operation::Release{};
      release.verb = verb_;
      release.store = store;
      release.patience = Saturated(options_.server_patience).count();
    }
    worker_->calls().Launch(Worker::NewCall(worker_, verb_, store_, {}), std::move(operations));
    worker_->GoOn();
  } catch (const std::exception& error) {
    static_cast<void>(error);  // the servers free it when this worker leaves
  }
}

void Saving::Stop() {
  cancellation_.Cancel();
  std::lock_guard lock(stopping_);
  if (thread_.joinable()) thread_.join();
}

void Saving::End(std::optional<Error> error, std::string saved_path) {
  std::unique_lock lock(mutex_);
  error_ = std::move(error);
  saved_path_ = std::move(saved_path);
  // The caller who cancelled this save already knows that, so kCancelled replaces any error that
  // followed from it.
  if (cancellation_.is_cancelled()) error_ = cancelled_;
  done_ = true;
  changed_.notify_all();
  const auto on_end = std::exchange(on_end_, {});
  lock.unlock();
  for (const auto& ended : on_end) ended();
}

bool Saving::done() const noexcept {
  std::lock_guard lock(mutex_);
  return done_;
}

void Saving::Wait(std::chrono::nanoseconds patience) {
  WaitUntilDone(patience);
  std::lock_guard lock(mutex_);
  is_told_ = true;
  if (error_) throw Error(*error_);
}

void Saving::WaitUntilDone(std::chrono::nanoseconds patience) {
  std::unique_lock lock(mutex_);
  if (!WaitUntil(&lock, &changed_, DeadlineAfter(patience), options_.interrupt,
                 [&] { return done_; })) {
    throw Fail(Code::kDeadlineExceeded, "{} {}: not done after {} ms", verb_, path_,
               std::chrono::duration_cast<std::chrono::milliseconds>(patience).count());
  }
}

void Saving::OnEnd(std::function<void()> ended) {
  CheckCallable(ended);
  {
    std::lock_guard lock(mutex_);
    if (!done_) {
      on_end_.push_back(std::move(ended));
      return;
    }
  }
  ended();
}

bool Saving::Cancel() {
  std::lock_guard lock(mutex_);
  return !done_ && cancellation_.Cancel();
}

std::optional<Error> Saving::Unseen() const {
  std::lock_guard lock(mutex_);
  return is_told_ ? std::nullopt : error_;
}

std::optional<Error> Saving::failure() const {
  std::lock_guard lock(mutex_);
  return error_;
}

std::string Saving::saved_path() const {
  std::lock_guard lock(mutex_);
  return saved_path_;
}

}  // namespace tkv
