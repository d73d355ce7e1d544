#include "client/operation.h"

namespace tkv {

const Operation::Push* Operation::push() const {
  if (const auto* const both = As<PushPull>()) return &both->push;
  return As<Push>();
}

const Operation::Pull* Operation::pull() const {
  if (const auto* const both = As<PushPull>()) return &both->pull;
  if (const auto* const read = As<Read>()) return &read->pull;
  return As<Pull>();
}

const codec::Contribution* Operation::value() const {
  if (const Push* const pushed = push()) return &pushed->value;
  if (const auto* const init = As<Init>()) return &init->value;
  if (const auto* const restore = As<Restore>()) return &restore->value;
  return nullptr;
}

}  // namespace tkv
