// The compressed forms in which gradients travel to the servers.

#pragma once

#include <string>

namespace tkv {

// How a worker compresses the gradients that it pushes.  The worker keeps the rounding error of
// each gradient and adds it to the next gradient of that key (error feedback).  So no part of a
// gradient is lost in the long run.
struct Compression {
  //   none   uncompressed
  //   fp16   2 bytes an element; bf16 the same
  //   int8   1 byte an element, and 4 for each 1,024: whole multiples of max |x| / 127
  //   2bit   2 bits an element: threshold, 0 or -threshold
  //   1bit   1 bit an element: 1 if the element is above the threshold, else -1
  //   topk   8 bytes for each element that is sent: the `ratio` of largest magnitude
  std::string type = "none";
  double threshold = 0.5;  // 2bit: above 0; 1bit: any
  double ratio = 0.01;     // topk: above 0, at most 1
};

}  // namespace tkv
