#include "tkv/key.h"

#include "base/format.h"

namespace tkv {

std::string KeyView::ToString() const {
  return is_string ? Format("'{}'", text) : Format("{}", number);
}

}  // namespace tkv
