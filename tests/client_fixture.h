// A client whose server is played by the test.

#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/client.h"

namespace tkv::test {

// A client, worker 0 of 2, with one server that is played by the test.
class ClientTest : public ::testing::Test {
 protected:
  explicit ClientTest(Time ping_after = 10'000 * kSecond,
                      size_t pull_bytes_max = ClientOptions().pull_bytes_max)
      : client_(Options(ping_after, pull_bytes_max)) {
    epoch_.number = 1;
    epoch_.workers = {{5, Epoch::State::kAlive}, {6, Epoch::State::kAlive}};
    epoch_.servers = {{9, Epoch::State::kAlive}};
    epoch_.placement = {1, 1, {}};
    Welcome welcome;
    welcome.rank = 0;
    welcome.incarnation = 5;
    client_.Joined(Role::kWorker, welcome);
    client_.On(epoch_, now_, &effects_);
    meta_.name = CanonicalKey(0, "w");
    meta_.chunk_elements = 1024;
    meta_.shape = Shape({2000});  // two chunks
  }
  static ClientOptions Options(Time ping_after, size_t pull_bytes_max) {
    ClientOptions options;
    options.ping_after = ping_after;
    options.pull_bytes_max = pull_bytes_max;
    return options;
  }

  // The client becomes a later life of its worker.
  void Rejoin(uint64_t incarnation = 5) {
    Welcome welcome;
    welcome.rank = 0;
    welcome.incarnation = incarnation;
    welcome.rejoined = true;
    client_.Joined(Role::kWorker, welcome);
  }

  // Begins an operation on the key of `meta_`.  Its value is `bytes_`, its output `out_`.
  OpId Begin(Operation::Request request, const char* verb, int priority = 0) {
    std::visit([this](auto& present) { Fill(&present); }, request);
    return Start(std::move(request), verb, meta_.name, priority);
  }
  // Begins an operation as it is.
  OpId Start(Operation::Request request, const char* verb, const std::string& key,
             int priority = 0) {
    Operation operation;
    operation.verb = verb;
    operation.key = key;
    operation.priority = priority;
    operation.request = std::move(request);
    const OpId id = client_.Start(std::move(operation), now_);
    client_.Settle(now_, &effects_);
    return id;
  }
  void Fill(Operation::Init* init) {
    init->meta = std::make_shared<const KeyMeta>(meta_);
    init->value.bytes = {bytes_.data(), bytes_.size(), nullptr};
  }
  void Fill(Operation::Push* push) {
    push->value.bytes = {bytes_.data(), bytes_.size(), nullptr};
    push->step = step_;
  }
  void Fill(Operation::Pull* pull) { pull->out = {out_.data(), out_.size(), nullptr}; }
  void Fill(Operation::PushPull* both) {
    Fill(&both->push);
    Fill(&both->pull);
  }
  void Fill(void*) {}  // no value and no output
  // Returns the messages that the client has sent since the last call.  Makes the connections that
  // it asks for.
  std::vector<Message> Sent() {
    std::vector<Message> messages;
    while (!effects_.dials.empty() || !effects_.sends.empty()) {
      const Effects out = std::exchange(effects_, {});
      for (const Effects::Notice& notice : out.notices) notices_.push_back(notice.text);
      for (size_t i = 0; i < out.dials.size(); ++i) client_.Opened(0, ++link_, now_, &effects_);
      for (const Effects::Sending& sending : out.sends) {
        if (sending.message.type != Type::kHello) {
          messages.push_back(sending.message);
          continue;
        }
        Welcome welcome;
        welcome.server_incarnation = 9;
        welcome.resumed = link_ > 1 && welcomes_resumed_;
        welcome.credit_bytes = credit_bytes_;
        welcome.protocol = protocol_;
        Message answer;
        answer.type = Type::kWelcome;
        answer.extra = Encode(welcome);
        Receive(answer);
      }
    }
    for (const Effects::Notice& notice : effects_.notices) notices_.push_back(notice.text);
    effects_.Clear();
    return messages;
  }
  void Answer(const Message& request, Type type, uint64_t number = 0) {
    Receive(Reply(request, type, number));
  }
  void Receive(const Message& message) {
    client_.Received(link_, message, now_, &effects_);
    client_.Settle(now_, &effects_);
  }
  void AnswerAll(const std::vector<Message>& requests, Type type, uint64_t number = 0) {
    for (const Message& request : requests) Answer(request, type, number);
  }
  void MakeKey() {
    Begin(Operation::Init{}, "init");
    AnswerAll(Sent(), Type::kOk);  // the second chunk
    AnswerAll(Sent(), Type::kOk);  // the first, with which the key appears
    ASSERT_EQ(client_.TakeOutcomes().size(), 1u);
  }
  void After(Time time) {
    now_ += time;
    client_.Tick(now_, &effects_);
  }
  std::optional<Error> FailureOf(OpId id) {
    for (const Outcome& outcome : client_.TakeOutcomes()) {
      if (outcome.op == id && outcome.error) return outcome.error;
    }
    return std::nullopt;
  }

  Client client_;
  Epoch epoch_;
  KeyMeta meta_;
  PushStep step_;  // of the pushes that begin
  Effects effects_;
  Time now_ = kSecond;
  LinkId link_ = 0;
  bool welcomes_resumed_ = true;
  Protocol protocol_;  // of the server
  size_t credit_bytes_ = size_t{1} << 30;
  std::vector<std::string> notices_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(2000 * 4);
  std::vector<std::byte> out_ = std::vector<std::byte>(2000 * 4);
};

inline std::vector<Message> Of(Type type, std::vector<Message> messages) {
  std::erase_if(messages, [&](const Message& message) { return message.type != type; });
  return messages;
}

}  // namespace tkv::test
