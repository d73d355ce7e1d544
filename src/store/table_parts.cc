#include "store/table_parts.h"

#include <algorithm>
#include <cstring>

#include "base/mix.h"

namespace tkv {

constexpr size_t kSavedBytes = size_t{4} << 20;  // bytes read or written at a time

std::span<const std::byte> TableParts::Next(const RowTable& table, const checkpoint::Item& item) {
  if (&item != item_) {
    item_ = &item;
    first_ = 0;
  }
  const size_t wide_bytes = table.row_elements() * ItemSize(ComputeType(table.dtype()));
  if (item.part == checkpoint::kCandidatesPart || item.part == checkpoint::kCandidateNotesPart) {
    return NextOfCandidates(table, item.part == checkpoint::kCandidateNotesPart);
  }
  const bool is_ids = item.part == checkpoint::kIdsPart;
  const bool is_notes = item.part == checkpoint::kNotesPart;
  const size_t bytes = is_ids                                ? sizeof(uint64_t)
                       : is_notes                            ? sizeof(RowNote)
                       : item.part == checkpoint::kValuePart ? table.row_bytes()
                                                             : wide_bytes;
  const std::vector<uint64_t> mixes =
      table.Mixes(first_, std::clamp<size_t>(kSavedBytes / (bytes + 1), 1, size_t{1} << 18));
  if (mixes.empty()) return {};
  // May wrap around after the largest mix, but then nothing more is asked.
  first_ = mixes.back() + 1;
  block_.resize(mixes.size() * bytes);
  if (is_ids) {
    for (size_t i = 0; i < mixes.size(); ++i) {
      const uint64_t id = Unmix(mixes[i]);
      std::memcpy(block_.data() + i * sizeof(id), &id, sizeof(id));
    }
  } else if (is_notes) {
    table.ReadNotes(mixes, reinterpret_cast<RowNote*>(block_.data()));
  } else if (item.part == checkpoint::kValuePart) {
    table.Read(mixes, block_.data());
  } else if (item.part == checkpoint::kMasterPart) {
    table.ReadMaster(mixes, block_.data());
  } else {
    table.ReadState(item.part - checkpoint::kStateParts, mixes, block_.data());
  }
  return block_;
}

std::span<const std::byte> TableParts::NextOfCandidates(const RowTable& table, bool notes) {
  const auto some = table.candidates().From(first_, kSavedBytes / sizeof(RowNote));
  first_ += some.size();
  const size_t bytes = notes ? sizeof(RowNote) : sizeof(uint64_t);
  block_.resize(some.size() * bytes);
  for (size_t i = 0; i < some.size(); ++i) {
    const uint64_t id = Unmix(some[i].mix);
    if (notes) {
      std::memcpy(block_.data() + i * bytes, &some[i].note, bytes);
    } else {
      std::memcpy(block_.data() + i * bytes, &id, bytes);
    }
  }
  return block_;
}

namespace {

void ReadCandidatesInto(const checkpoint::Reader& reader, size_t index, RowTable* table) {
  constexpr uint64_t kAtOnce = uint64_t{1} << 16;
  const uint64_t all = reader.keys()[index].candidates;
  std::vector<uint64_t> ids;
  std::vector<RowNote> notes;
  for (uint64_t at = 0; at < all; at += kAtOnce) {
    const size_t count = std::min(kAtOnce, all - at);
    ids.resize(count);
    notes.resize(count);
    reader.Read(index, checkpoint::kCandidatesPart, std::as_writable_bytes(std::span(ids)),
                at * sizeof(uint64_t));
    reader.Read(index, checkpoint::kCandidateNotesPart, std::as_writable_bytes(std::span(notes)),
                at * sizeof(RowNote));
    for (size_t i = 0; i < count; ++i) table->PutCandidate({Mix(ids[i]), notes[i]});
  }
}

}  // namespace

void ReadInto(const checkpoint::Reader& reader, size_t index, bool with_values, RowTable* table) {
  const checkpoint::SavedKey& saved = reader.keys()[index];
  const bool has_values = with_values && saved.has_value;
  if (has_values) {
    table->ContinueFrom(saved.row_version);
    if (table->policy().admit_count > 1) ReadCandidatesInto(reader, index, table);
  }
  if (!has_values && !saved.has_master && saved.arrays.empty()) return;
  const size_t wide_bytes = table->row_elements() * ItemSize(ComputeType(table->dtype()));
  const size_t row_bytes = std::max({sizeof(uint64_t), table->row_bytes(), wide_bytes});
  const uint64_t at_once = std::clamp<uint64_t>(kSavedBytes / row_bytes, 1, saved.rows + 1);
  std::vector<uint64_t> mixes;
  std::vector<std::byte> block;
  ReservedRows reserved;
  for (uint64_t at = 0; at < saved.rows; at += at_once) {
    const size_t count = std::min(at_once, saved.rows - at);
    mixes.resize(count);
    reader.Read(index, checkpoint::kIdsPart, std::as_writable_bytes(std::span(mixes)),
                at * sizeof(uint64_t));
    for (uint64_t& mix : mixes) mix = Mix(mix);
    table->Reserve(mixes, &reserved);
    const auto read = [&](uint64_t part, size_t bytes) {
      block.resize(count * bytes);
      reader.Read(index, part, block, at * bytes);
      return RowSource{block.data(), bytes, nullptr};
    };
    if (has_values) {
      table->Assign(reserved, read(checkpoint::kValuePart, table->row_bytes()), table->dtype());
    }
    if (has_values && saved.policy.has_notes && table->policy().has_notes) {
      const RowSource notes = read(checkpoint::kNotesPart, sizeof(RowNote));
      table->AssignNotes(reserved, reinterpret_cast<const RowNote*>(notes.base));
    }
    if (saved.has_master) table->AssignMaster(reserved, read(checkpoint::kMasterPart, wide_bytes));
    for (size_t s = 0; s < saved.arrays.size(); ++s) {
      table->AssignState(s, reserved, read(checkpoint::kStateParts + s, wide_bytes));
    }
    table->Settle();
  }
}

}  // namespace tkv
