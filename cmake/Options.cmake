# Every build option of the project, in one place.
option(TKV_BUILD_TESTS "Build the C++ tests" OFF)
option(TKV_BUILD_BENCH "Build the C++ benchmarks" OFF)
option(TKV_BUILD_CLI "Build the tkv command" OFF)
option(TKV_BUILD_PYTHON "Build the Python extension" OFF)
option(TKV_BUILD_FUZZERS "Build the libFuzzer targets (needs clang)" OFF)
option(TKV_BUILD_SIMULATION "Build the simulation and the explorer, and the commands sim and explore" ON)
option(TKV_WARNINGS_AS_ERRORS "Treat warnings in our own code as errors" OFF)
option(TKV_UNITY "Compile the files of a module in batches: quicker as a whole, slower after a change" ON)
set(TKV_SANITIZE "" CACHE STRING "Sanitizers to compile with: address,undefined or thread")

if(TKV_BUILD_FUZZERS AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "TKV_BUILD_FUZZERS needs clang: use the preset 'fuzz'")
endif()
