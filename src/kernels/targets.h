// Which instruction sets the kernels were built for and which one runs.

#pragma once

#include <string>
#include <vector>

namespace tkv::kernels {

std::string ActiveTarget();               // "AVX3"
std::vector<std::string> BuiltTargets();  // best first

}  // namespace tkv::kernels
