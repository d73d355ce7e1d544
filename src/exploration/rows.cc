#include "exploration/rows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>

#include "base/format.h"
#include "base/mix.h"
#include "codec/rows.h"

namespace tkv::exploration {
namespace {

constexpr uint64_t kIdsOfPush = 64;  // enough ids to find one of each bucket

uint64_t IdOfRow(size_t push, uint32_t bucket) {
  uint64_t id = push * kIdsOfPush;
  while (BucketOf(Mix(id), kChunks) != bucket) ++id;
  return id;
}

// Returns the pushes whose rows a pull of a bucket requests, in the order in which rows are sent.
const std::vector<size_t>& PushesIn(uint32_t bucket) {
  static const auto all = [] {
    std::array<std::vector<size_t>, kChunks> pushes;
    for (uint32_t c = 0; c < kChunks; ++c) {
      for (int rank = 0; rank < kWorkers; ++rank) {
        for (int life = 0; life < 2; ++life) {
          for (int n = 1; n <= kRowOrdinals; ++n) pushes[c].push_back(PushId(rank, life, n));
        }
      }
      if (c == 0) pushes[c].push_back(kSharedPush);
      std::sort(pushes[c].begin(), pushes[c].end(),
                [c](size_t a, size_t b) { return Mix(IdOfRow(a, c)) < Mix(IdOfRow(b, c)); });
    }
    return pushes;
  }();
  return all[bucket];
}

Block Memory(size_t bytes) {
  const auto memory = std::make_shared<std::vector<std::byte>>(bytes + 8);
  return {memory->data(), bytes, memory};
}

codec::Contribution MakeRows(std::vector<int64_t> ids) {
  const codec::IdOrder order(ids);
  codec::Contribution rows;
  codec::WriteRows(
      order.mixes(), kChunks, sizeof(float), Memory(codec::RowsBytes(order.mixes(), sizeof(float))),
      [](size_t, std::byte* at) {
        const float one = 1;
        std::memcpy(at, &one, sizeof one);
      },
      &rows);
  return rows;
}

}  // namespace

KeyMeta RowsMeta(const Scope& scope) {
  KeyMeta meta;
  meta.name = KeyName();
  meta.dtype = DType::kF32;
  meta.layout = Layout::kRows;
  meta.shape = Shape({1});
  meta.row_count = kPushes * kIdsOfPush;
  meta.buckets = kChunks;
  meta.policy.admit_count = scope.admit_count;
  meta.policy.has_notes = true;
  return meta;
}

const codec::Contribution& NoRows() {
  static const codec::Contribution none = MakeRows({});
  return none;
}

const codec::Contribution& RowsOfPush(size_t push, bool is_shared) {
  static std::map<std::pair<size_t, bool>, codec::Contribution> made;
  const auto [at, is_new] = made.try_emplace({push, is_shared});
  if (!is_new) return at->second;
  std::vector<int64_t> ids;
  for (uint32_t c = 0; c < kChunks; ++c) {
    if (Brings(push, c)) ids.push_back(static_cast<int64_t>(IdOfRow(push, c)));
  }
  if (is_shared) ids.push_back(static_cast<int64_t>(IdOfRow(kSharedPush, 0)));
  return at->second = MakeRows(std::move(ids));
}

const codec::Contribution& AllIds() {
  static const codec::Contribution asked = [] {
    std::vector<int64_t> ids;
    for (uint32_t c = 0; c < kChunks; ++c) {
      for (const size_t push : PushesIn(c)) ids.push_back(static_cast<int64_t>(IdOfRow(push, c)));
    }
    const codec::IdOrder order(ids);
    codec::Contribution made;
    codec::WriteIds(order.mixes(), kChunks, Memory(ids.size() * sizeof(uint64_t)), &made);
    return made;
  }();
  return asked;
}

size_t PulledRows() {
  size_t rows = 0;
  for (uint32_t c = 0; c < kChunks; ++c) rows += PushesIn(c).size();
  return rows;
}

bool CountsOfRows(const float* pulled, uint32_t bucket, Counts* counts) {
  for (uint32_t c = 0; c < bucket; ++c) pulled += PushesIn(c).size();
  for (const size_t push : PushesIn(bucket)) {
    const float value = *pulled++;
    if (!(value >= 0 && value <= kWorkers) || value != static_cast<float>(static_cast<int>(value)))
      return false;
    (*counts)[push] = static_cast<uint8_t>(value);
  }
  return true;
}

namespace {

// Returns the note of a row or of a candidate; its count is 0 if there is none.
RowNote NoteOf(const RowTable& table, uint64_t mix, bool of_row) {
  RowNote note;
  if (of_row) {
    if (table.Contains(mix)) table.ReadNotes({&mix, 1}, &note);
    return note;
  }
  for (const auto& candidate : table.candidates().From(0, table.candidates().size())) {
    if (candidate.mix == mix) note = candidate.note;
  }
  return note;
}

std::string CheckSharedRow(const Scope& scope, const RowTable& table, uint64_t versions,
                           uint64_t pushes, uint8_t value) {
  const uint64_t mix = Mix(IdOfRow(kSharedPush, 0));
  const uint64_t times = versions + (pushes != 0 ? 1 : 0);
  const bool is_row = times >= scope.admit_count;
  const uint64_t wanted = is_row ? times - scope.admit_count + 1 : times;
  if (table.Contains(mix) != is_row) return is_row ? "no row is made" : "a row is made too early";
  const RowNote note = NoteOf(table, mix, is_row);
  if (note.count != wanted || NoteOf(table, mix, !is_row).count != 0) {
    return Format("a row that all bring is counted {} times, not {}", note.count, wanted);
  }
  const int sum = is_row ? std::popcount(pushes) : 0;
  if (pushes != 0 && value != sum) {
    return Format("{} pushes bring a row, its sum is {}", sum, static_cast<int>(value));
  }
  return {};
}

}  // namespace

std::string FindPushesInRows(const Scope& scope, const RowTable& table, uint32_t bucket,
                             uint64_t versions, Counts* counts, uint64_t* pushes) {
  const bool are_rows = scope.admit_count == 1;
  size_t noted = 0;
  for (const size_t push : PushesIn(bucket)) {
    const uint64_t mix = Mix(IdOfRow(push, bucket));
    float value = 0;
    table.Read({&mix, 1}, &value);
    (*counts)[push] = static_cast<uint8_t>(value);
    if (push == kSharedPush) continue;
    const RowNote note = NoteOf(table, mix, are_rows);
    noted += note.count > 0 ? 1 : 0;
    if (note.count > 1) return Format("push {} counts {} times", push, note.count);
    if (value != static_cast<float>(are_rows ? note.count : 0)) {
      return Format("the row of push {} is {}", push, value);
    }
    if (note.count == 0 || note.version != table.version()) continue;
    if (!Brings(push, bucket)) return Format("push {} brings a row that it has not", push);
    *pushes |= uint64_t{1} << push;
  }
  const bool is_shared = bucket == 0 && !are_rows;
  if (table.size() + table.candidates().size() !=
      noted + (is_shared && versions + (*pushes != 0 ? 1 : 0) > 0 ? 1 : 0)) {
    return "there are rows that nobody has pushed";
  }
  return is_shared ? CheckSharedRow(scope, table, versions, *pushes, (*counts)[kSharedPush]) : "";
}

}  // namespace tkv::exploration
