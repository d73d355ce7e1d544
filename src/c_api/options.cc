#include "c_api/options.h"

#include <vector>

#include "tkv/config.h"

namespace tkv::c_api {

Options::Options(const tkv_store_options* given, std::string_view type, const char* verb)
    : given_(ReadOr(given, verb, "tkv_store_options")),
      core_(given_.ignores_environment != 0 ? StoreOptions() : OptionsFromEnvironment()),
      log_(std::make_shared<UserContext>(given_.log_context)),
      interrupt_(std::make_shared<UserContext>(given_.interrupt_context)) {
  if (given_.log != nullptr) {
    core_.log = [log = given_.log, context = log_](int level, const std::string& text) {
      log(context->get(), level, text.c_str());
    };
  }
  if (given_.interrupt != nullptr) {
    core_.interrupt = [interrupt = given_.interrupt, context = interrupt_] {
      ThrowError(interrupt(context->get()));
    };
  }
  const auto given_options = List(given_.options, given_.option_count, verb, "the list of options");
  std::vector<NamedText> arguments;
  arguments.reserve(given_options.size());
  for (const tkv_option& option : given_options) {
    arguments.push_back({Text(option.name, verb, "the name of an option"),
                         Text(option.value, verb, "the value of an option")});
  }
  SetArguments(&core_, type, arguments);
}

void Options::Keep() {
  log_->Keep(given_.log_free);
  interrupt_->Keep(given_.interrupt_free);
}

}  // namespace tkv::c_api
