#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/copy.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace tkv::kernels {
namespace HWY_NAMESPACE {

template <bool kStream>
HWY_INLINE void CopyLoop(const uint8_t* HWY_RESTRICT source, uint8_t* HWY_RESTRICT target,
                         size_t bytes) {
  constexpr size_t kLine = 64;
  const hn::ScalableTag<uint8_t> tag;
  const size_t lanes = hn::Lanes(tag);
  const size_t head = ElementsToAlignment(target, kLine);
  if (lanes == 1 || bytes < head + kLine) {
    std::memcpy(target, source, bytes);
    return;
  }
  std::memcpy(target, source, head);
  size_t i = head;
  for (; i + kLine <= bytes;
       i += kLine) {  // whole lines, so that write combining buffers are full when written
    for (size_t j = 0; j < kLine; j += lanes) {
      const auto line = hn::LoadU(tag, source + i + j);
      if constexpr (kStream) {
        hn::Stream(line, tag, target + i + j);
      } else {
        hn::Store(line, tag, target + i + j);
      }
    }
  }
  std::memcpy(target + i, source + i, bytes - i);
}

void CopyDispatch(const uint8_t* source, uint8_t* target, size_t bytes, Write write) {
  if (write == Write::kStreaming) {
    CopyLoop<true>(source, target, bytes);
  } else {
    CopyLoop<false>(source, target, bytes);
  }
}

void FenceDispatch() { hwy::FlushStream(); }

}  // namespace HWY_NAMESPACE
}  // namespace tkv::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tkv::kernels {

TKV_EXPORT(CopyDispatch);
TKV_EXPORT(FenceDispatch);

void Copy(const void* source, void* target, size_t bytes, Write write) {
  if (bytes < 256) {
    if (bytes > 0) std::memcpy(target, source, bytes);
    return;
  }
  TKV_DISPATCH(CopyDispatch)
  (static_cast<const uint8_t*>(source), static_cast<uint8_t*>(target), bytes, write);
}

void Fence() { TKV_DISPATCH(FenceDispatch)(); }

}  // namespace tkv::kernels
#endif
