// tkv_ticket_*.

#include "c_api/handles.h"
#include "c_api/values.h"

using namespace tkv::c_api;

tkv_ticket* tkv_ticket_retain(tkv_ticket* ticket) { return Retain(ticket); }
void tkv_ticket_release(tkv_ticket* ticket) { Release(ticket); }
int32_t tkv_ticket_is_done(const tkv_ticket* ticket) {
  return ticket == nullptr || ticket->core->done() ? 1 : 0;
}

tkv_code tkv_ticket_wait(tkv_ticket* ticket, int64_t patience_ms, tkv_error** error) {
  return Try(error,
             [&] { Core(ticket, "wait", "the ticket")->Wait(Patience(patience_ms, "wait")); });
}

int32_t tkv_ticket_cancel(tkv_ticket* ticket) {
  int32_t has_cancelled = 0;
  Try(nullptr, [&] { has_cancelled = Core(ticket, "cancel", "the ticket")->Cancel() ? 1 : 0; });
  return has_cancelled;
}

tkv_code tkv_ticket_on_end(tkv_ticket* ticket, void (*ended)(void* context), void* context,
                           tkv_free free, tkv_error** error) {
  return Try(error, [&] {
    const char* const verb = "on_end";
    const tkv::Ticket& call = Core(ticket, verb, "the ticket");
    CheckNotNull(ended, verb, "the function");
    const auto kept = std::make_shared<UserContext>(context);
    call->OnEnd([ended, kept] { ended(kept->get()); });
    kept->Keep(free);
  });
}
