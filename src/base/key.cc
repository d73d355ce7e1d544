#include "tkv/key.h"

#include "base/format.h"
#include "base/key_text.h"
#include "base/logfmt.h"

namespace tkv {

std::string KeyView::ToString() const {
  constexpr size_t kShownBytes = 64;
  if (!is_string) return Format("{}", number);
  if (text.size() <= kKeyTextBytesMax) return Format("'{}'", text);
  size_t end = kShownBytes;
  // The shown part ends between two UTF-8 characters.
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  return Format("'{}...'", text.substr(0, end));
}

const char* WhyNoKey(std::string_view text) {
  static_assert(kKeyTextBytesMax == 1019);
  if (text.size() > kKeyTextBytesMax) return "has more than 1019 bytes";
  if (text.find('\0') != std::string_view::npos) return "has the character zero";
  return IsUtf8(text) ? nullptr : "is not UTF-8";
}

}  // namespace tkv
