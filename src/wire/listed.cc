#include "wire/listed.h"

#include "base/byte_io.h"
#include "base/format.h"

namespace tkv {
namespace {

constexpr size_t kItemBytesMin = 60;
constexpr size_t kPushedBytes = sizeof(Rank) + 3 * sizeof(uint64_t);

// Reads a worker's rank.  Unlike ReadRank, refuses kNoRank.
Rank ReadWorker(ByteReader* reader) {
  const Rank rank = reader->Number<Rank>();
  if (rank < 0 || rank >= kWorkersMax) throw Fail(Code::kInvalidArgument, "rank {}", rank);
  return rank;
}

bool ReadFlag(ByteReader* reader) {
  const auto flag = reader->Number<uint8_t>();
  if (flag > 1) throw Fail(Code::kInvalidArgument, "a flag of {}", flag);
  return flag == 1;
}

Listed::Item ReadItem(ByteReader* reader) {
  Listed::Item item;
  item.meta = DecodeKeyMeta(reader->Text(kListedBytesMax));
  item.has_own = ReadFlag(reader);
  item.has_first = ReadFlag(reader);
  item.chunks = reader->Number<uint32_t>();
  for (uint64_t* const number :
       {&item.bytes, &item.oldest, &item.newest, &item.base, &item.waiting, &item.open_for}) {
    *number = reader->Number<uint64_t>();
  }
  item.missing_count = reader->Number<uint32_t>();
  item.missing.resize(reader->Count(sizeof(Rank)));
  if (item.missing.size() > Listed::Item::kMissingMax) {
    throw Fail(Code::kInvalidArgument, "{} missing ranks", item.missing.size());
  }
  for (Rank& rank : item.missing) rank = ReadWorker(reader);
  return item;
}

}  // namespace

std::string Encode(const Listed::Item& value) {
  ByteWriter writer;
  writer.Text(Encode(value.meta));
  writer.Number(static_cast<uint8_t>(value.has_own));
  writer.Number(static_cast<uint8_t>(value.has_first));
  writer.Number(value.chunks);
  for (const uint64_t number :
       {value.bytes, value.oldest, value.newest, value.base, value.waiting, value.open_for}) {
    writer.Number(number);
  }
  writer.Number(value.missing_count);
  writer.Number(static_cast<uint32_t>(value.missing.size()));
  for (const Rank rank : value.missing) writer.Number(rank);
  return writer.Take();
}

std::string Encode(const Listed& value, uint32_t item_count, std::string_view items) {
  ByteWriter writer;
  writer.Number(value.observers);
  const Listed::Memory& memory = value.memory;
  for (const uint64_t bytes :
       {memory.values, memory.state, memory.sums, memory.held, memory.cuts, memory.rows}) {
    writer.Number(bytes);
  }
  writer.Number(static_cast<uint32_t>(value.workers.size()));
  for (const Listed::Pushed& pushed : value.workers) {
    writer.Number(pushed.rank);
    writer.Number(pushed.incarnation);
    writer.Number(pushed.pushes);
    writer.Number(pushed.bytes);
  }
  writer.Number(item_count);
  return writer.Take().append(items);
}

Listed DecodeListed(std::string_view bytes) {
  ByteReader reader(bytes);
  Listed listed;
  listed.observers = reader.Number<uint64_t>();
  Listed::Memory& memory = listed.memory;
  for (uint64_t* const part :
       {&memory.values, &memory.state, &memory.sums, &memory.held, &memory.cuts, &memory.rows}) {
    *part = reader.Number<uint64_t>();
  }
  listed.workers.resize(reader.Count(kPushedBytes));
  for (Listed::Pushed& pushed : listed.workers) {
    pushed.rank = ReadWorker(&reader);
    pushed.incarnation = reader.Number<uint64_t>();
    pushed.pushes = reader.Number<uint64_t>();
    pushed.bytes = reader.Number<uint64_t>();
  }
  const uint32_t count = reader.Count(kItemBytesMin);
  listed.items.reserve(count);
  for (uint32_t i = 0; i < count; ++i) listed.items.push_back(ReadItem(&reader));
  reader.End();
  return listed;
}

}  // namespace tkv
