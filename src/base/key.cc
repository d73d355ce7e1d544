#include "tkv/key.h"

#include "base/format.h"

namespace tkv {

std::string KeyView::ToString() const {
  constexpr size_t kShownBytes = 64;
  if (!is_string) return Format("{}", number);
  if (text.size() <= kKeyTextBytesMax) return Format("'{}'", text);
  size_t end = kShownBytes;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // a character is whole
  return Format("'{}...'", text.substr(0, end));
}

}  // namespace tkv
