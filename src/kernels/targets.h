// The instruction sets for which the kernels were built, and the one that runs.

#pragma once

#include <string>
#include <vector>

namespace tkv::kernels {

std::string ActiveTarget();               // "AVX3"
std::vector<std::string> BuiltTargets();  // best first

}  // namespace tkv::kernels
