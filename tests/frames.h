// Messages and frames made by hand.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "wire/frame.h"

namespace tkv {

inline std::string FrameText(std::vector<Message> messages) {
  FrameBuilder builder;
  for (Message& message : messages) builder.Add(std::move(message));
  return builder.Finish(0, 0).head;
}

inline Message MessageOf(Type type, std::string extra = {}) {
  Message message;
  message.type = type;
  message.extra = std::move(extra);
  return message;
}

}  // namespace tkv
