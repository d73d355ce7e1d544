#include "transport/factory.h"

#include <algorithm>

#include "base/format.h"
#include "transport/socket/transport.h"

namespace tkv {

const std::vector<const Transport*>& BuiltTransports() {
  static const SocketTransport shared("auto", true, true), unshared("unix", true, false),
      tcp("tcp", false, false);
  static const std::vector<const Transport*> all = {&shared, &unshared, &tcp};
  return all;
}

const Transport& BuiltTransport(std::string_view name) {
  const auto& all = BuiltTransports();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Transport* one) { return one->name() == name; });
  if (found != all.end()) return **found;
  std::vector<std::string_view> names;
  names.reserve(all.size());
  for (const Transport* one : all) names.push_back(one->name());
  throw Fail(Code::kInvalidArgument, "transport '{}'; there are {}", name, Join(names, ", "));
}

}  // namespace tkv
