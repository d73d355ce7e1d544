#include "server/replies.h"

#include <utility>

#include "base/format.h"

namespace tkv {
namespace {

constexpr Time kRefusalsEvery = 10 * kSecond;  // interval between log lines about refusals

}  // namespace

std::string StoreIsOver(uint32_t store) {
  return Format("store {} is over: every worker had closed it, and its keys are gone", store);
}

void Replies::Answer(Session* session, const Message& request, Message reply, Effects* effects) {
  if (IsMutating(request.type)) session->Finish(request.seq, reply);
  core_.has_begun |=
      reply.type == Type::kAccepted && (request.flags & (kBarrierKey | kBegins)) != kBarrierKey;
  if (session->link != kNoLink) effects->Send(session->link, std::move(reply));
}

void Replies::AnswerError(Session* session, const Message& request, Code code, std::string text,
                          Effects* effects) {
  if (code == Code::kResourceExhausted && core_.now >= core_.next_refusal) {
    core_.next_refusal = core_.now + kRefusalsEvery;
    effects->Log(Level::kWarning,
                 Format("{} of worker {}: {}", Name(request.type), session->id.rank, text));
  }
  Answer(session, request, ErrorReply(request.seq, code, std::move(text)), effects);
}

void Replies::Violation(Session* session, const Message& message, std::string reason,
                        Effects* effects) {
  const std::string who = session->role == Role::kObserver ? std::string("an observer")
                                                           : Format("worker {}", session->id.rank);
  effects->Log(Level::kWarning,
               Format("{}: {}: {}; its session is closed", who, Name(message.type), reason));
  effects->Close(session->link, Code::kInvalidArgument,
                 Format("{}: {}", Name(message.type), reason));
  const LinkId link = session->link;
  core_.CloseLink(link);
}

void Replies::AnswerMadeAnew(Session* session, const Message& message, Effects* effects) {
  AnswerError(session, message, Code::kFailedPrecondition,
              Format("the key has been deleted and made anew{}", kDeleteRight), effects);
}

void Replies::AnswerTooMany(Session* session, const Message& message, Effects* effects) {
  AnswerError(session, message, Code::kResourceExhausted,
              Format("{} operations of this worker wait at the server", session->parked), effects);
}

}  // namespace tkv
