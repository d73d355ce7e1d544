// Sends messages with random parts, ids, ranges and states for row keys to a server.  The server
// must answer each message, account for the memory of waiting ones, and go on.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "server/shard.h"
#include "tests/fuzz/reader.h"
#include "tkv/optimizer.h"

namespace {

using tkv::Message;
using tkv::Type;

struct Reader : tkv::test::Reader {
  // Returns a small number, or one near the maximum.
  uint64_t Number() {
    const uint8_t number = Next();
    return number < 200 ? number : UINT64_MAX - (255U - number);
  }
  // Returns a random number of words; sometimes a byte is missing.
  tkv::Bytes Body() {
    auto body = std::make_shared<std::vector<std::byte>>();
    const size_t words = Next() % 32;
    for (size_t i = 0; i < words; ++i) {
      const uint64_t word = Number();
      body->resize(body->size() + sizeof word);
      std::memcpy(body->data() + body->size() - sizeof word, &word, sizeof word);
    }
    if (Next() % 8 == 0 && !body->empty()) body->pop_back();
    return {body->data(), body->size(), body};
  }
};

// A job of two workers and one row key with rows of two floats.
class Job {
 public:
  Job() : shard_({}, &pool_) {
    shard_.Joined(0, 9);
    epoch_.number = 1;
    epoch_.workers = {{4, tkv::Epoch::State::kAlive}, {5, tkv::Epoch::State::kAlive}};
    epoch_.servers = {{9, tkv::Epoch::State::kAlive}};
    epoch_.placement = {1, 1, {}};
    shard_.On(epoch_, &effects_);
    for (const tkv::Rank rank : {0, 1}) Greet(rank);
    meta_.name = tkv::CanonicalKey(0, "rows");
    meta_.shape = tkv::Shape({2});
    meta_.layout = tkv::Layout::kRows;
    meta_.row_count = 100;
    meta_.buckets = 1;
    meta_.policy = {.admit_count = 2, .age_max = 20, .has_notes = true};
    key_ = tkv::IdOf(meta_.name);
    Message init = Make(Type::kInit);
    init.extra = Encode(meta_);
    Send(0, init);
    SetMomentum();
  }

  Message Make(Type type, uint64_t number = 0) {
    Message message;
    message.type = type;
    message.key = key_;
    message.seq = ++seq_;
    message.number = number;
    return message;
  }
  // Sends a message as a connection does: only admitted messages get a buffer.  Connects again if
  // the server has closed the connection.
  void Send(tkv::Rank rank, Message message) {
    const tkv::LinkId link = 1 + rank;
    if (message.type != Type::kControl) shard_.Header(link, message.seq);
    if (message.body.size > 0 && !shard_.Admit(link, message)) {
      message.body = {nullptr, message.body.size, nullptr};
    }
    effects_.Clear();
    shard_.Received(link, std::move(message), &effects_);
    if (!shard_.Miscounted().empty()) std::abort();
    if (!effects_.closes.empty()) Greet(rank);
  }
  uint64_t version() { return shard_.FindChunk({key_, 0})->version; }

 private:
  void Greet(tkv::Rank rank) {
    Message hello;
    hello.type = Type::kHello;
    hello.extra = Encode(tkv::Hello{"", tkv::Role::kWorker, rank, uint64_t{4} + rank, 0, ""});
    effects_.Clear();
    shard_.Received(1 + rank, std::move(hello), &effects_);
  }
  void SetMomentum() {
    const auto momentum = tkv::Optimizer::Create("momentum", {{"momentum", 0.5}});
    tkv::UpdateSpec spec;
    spec.program = momentum->program().ToText();
    spec.params = momentum->ParamsFor("rows");
    Message control = Make(Type::kControl, 1);
    control.key = {};
    control.extra = Encode(spec);
    const auto item = std::make_shared<tkv::ControlRounds::Item>();
    *item = {key_, 1};
    control.body = {reinterpret_cast<const std::byte*>(item.get()), sizeof *item, item};
    Send(0, control);
    ++epoch_.number;
    epoch_.commits = {{0, 4, 1}};
    shard_.On(epoch_, &effects_);
  }

  tkv::BufferPool pool_;
  tkv::Shard shard_;
  tkv::Epoch epoch_;
  tkv::Effects effects_;
  tkv::KeyMeta meta_;
  tkv::KeyId key_;
  uint64_t seq_ = 0;
};

Message AnyPush(Reader* in, Job* job) {
  Message push = job->Make(Type::kPush, job->version() + in->Next() % 3);
  const uint8_t encoding = in->Next();
  push.encoding = encoding < 200 ? tkv::Encoding::kRows : static_cast<tkv::Encoding>(encoding % 16);
  push.body = in->Body();
  return push;
}

Message AnyRead(Reader* in, Job* job) {
  Message read = job->Make(Type::kPull, in->Number());
  read.need = job->version();
  read.flags = tkv::kOfCut;
  if (in->Next() % 2 == 0) {
    read.extra = Encode(tkv::RowRange{in->Number(), in->Number()});
  } else {
    read.body = in->Body();
  }
  return read;
}

Message AnyRestore(Reader* in, Job* job) {
  tkv::ChunkState state;
  const uint8_t bits = in->Next();
  state.by_rows = bits % 16 != 0;
  state.has_value = (bits & 16) != 0;
  state.has_notes = (bits & 32) != 0;
  state.has_master = (bits & 192) == 192;
  state.rows = in->Number() & tkv::ChunkState::kRowsMax - 1;
  state.candidates = in->Number() & tkv::ChunkState::kRowsMax - 1;
  state.row_version = in->Number();
  state.arrays = in->Next() % 3;
  state.scalars = in->Next() % 2;
  if (state.arrays > 0) state.spec.program = tkv::Optimizer::Create("momentum")->program().ToText();
  Message restore = job->Make(Type::kRestore, in->Next());
  restore.extra = Encode(state);
  restore.flags = in->Next() & (tkv::kMore | tkv::kOnlyRows);
  restore.body = in->Body();
  return restore;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Reader in{{data, size}};
  Job job;
  for (int step = 0; step < 40 && in.size > 0; ++step) {
    switch (in.Next() % 6) {
      case 0:
        job.Send(0, AnyPush(&in, &job));
        break;
      case 1: {
        Message push = job.Make(Type::kPush, job.version() + 1);
        push.encoding = tkv::Encoding::kRows;
        job.Send(1, std::move(push));
        break;
      }
      case 2: {
        Message pull = job.Make(Type::kPull, in.Next() % 2 == 0 ? 0 : job.version() + 1);
        pull.body = in.Body();
        job.Send(in.Next() % 2, std::move(pull));
        break;
      }
      case 3: {
        Message cut = job.Make(Type::kPull, job.version());
        cut.flags = tkv::kNoBody | tkv::kCut;
        job.Send(0, std::move(cut));
        break;
      }
      case 4:
        job.Send(0, AnyRead(&in, &job));
        break;
      default:
        job.Send(0, AnyRestore(&in, &job));
    }
  }
  return 0;
}
