# tkv_module(NAME SOURCES ... DEPS ... TESTS ...)
#
# A module is a folder of src/: an object library tkv_NAME whose objects become part of libtkv, and one test program.
# DEPS are other modules or imported targets.  The include table in tools/layers.txt is checked by tools/tidy.py.
set_property(GLOBAL PROPERTY TKV_MODULES "")

add_library(tkv_flags INTERFACE)
target_compile_features(tkv_flags INTERFACE cxx_std_20)
target_include_directories(tkv_flags INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
# No contraction: a fused multiply-add would make results depend on the instruction set.
target_compile_options(tkv_flags INTERFACE -ffp-contract=off -fno-math-errno -fvisibility=hidden)
# Messages and debug information name files as src/...  The compiler sees a whole path, or a path from the build's folder where
# its cache rewrites paths; both prefixes are removed.
file(RELATIVE_PATH to_source ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR}/CMakeLists.txt)
string(REPLACE CMakeLists.txt "" to_source "${to_source}")
target_compile_options(tkv_flags INTERFACE -ffile-prefix-map=${PROJECT_SOURCE_DIR}/= -ffile-prefix-map=${to_source}=)
if(TKV_WARNINGS_AS_ERRORS)
  target_compile_options(tkv_flags INTERFACE -Wall -Wextra -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers -Werror)
  # The stable algorithms of libstdc++ 12 use what it deprecates itself, and Clang warns at each use.
  target_compile_options(tkv_flags INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>)
endif()
if(TKV_SANITIZE)
  # Without debug information a report still names functions, and builds and links take half the time.
  target_compile_options(tkv_flags INTERFACE -fsanitize=${TKV_SANITIZE} -fno-sanitize-recover=all -O1 -g0 -fno-omit-frame-pointer)
  target_link_options(tkv_flags INTERFACE -fsanitize=${TKV_SANITIZE})
  if(TKV_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(tkv_flags INTERFACE -Wno-tsan)  # Asio's fences, which it does not see
  endif()
endif()
if(TKV_BUILD_FUZZERS)
  target_compile_options(tkv_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# tkv_batches(SOURCES_VARIABLE NAME [SIZE n]): with TKV_UNITY, replaces the sources in the variable by generated files that include
# up to SIZE (default 16) of them each, so that headers are read once for all.  Generated files name sources relative to the tree,
# so that all clones share the compiler's cache.  A file with the property SKIP_UNITY_BUILD_INCLUSION stays alone.
if(TKV_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # -Wsubobject-linkage takes every included file for a header, and batches include sources.  GCC 12 reports small vectors
  # as uninitialized in large files, wrongly; a build with -DTKV_UNITY=OFF has that warning.
  target_compile_options(tkv_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage> -Wno-maybe-uninitialized)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 takes an empty small vector that is moved for a long one, wrongly, in files that are compiled by themselves.
  target_compile_options(tkv_flags INTERFACE -Wno-stringop-overread)
endif()
function(tkv_batches sources_variable name)
  if(NOT TKV_UNITY)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "SIZE" "")
  if(NOT arg_SIZE)
    set(arg_SIZE 16)
  endif()
  set(files "")
  set(number 0)
  foreach(source IN LISTS ${sources_variable})
    get_source_file_property(is_alone ${source} SKIP_UNITY_BUILD_INCLUSION)
    if(is_alone)
      list(APPEND files ${source})
      continue()
    endif()
    math(EXPR batch "${number} / ${arg_SIZE}")
    math(EXPR number "${number} + 1")
    cmake_path(ABSOLUTE_PATH source)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(APPEND text_${batch} "#include \"${source}\"\n")
    list(APPEND files ${CMAKE_CURRENT_BINARY_DIR}/${name}_${batch}.cc)
  endforeach()
  list(REMOVE_DUPLICATES files)
  foreach(batch RANGE ${number})
    if(text_${batch})
      file(CONFIGURE OUTPUT ${name}_${batch}.cc CONTENT "${text_${batch}}" @ONLY)  # an equal file keeps its time
    endif()
  endforeach()
  set(${sources_variable} ${files} PARENT_SCOPE)
endfunction()

function(tkv_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS;TESTS")
  tkv_batches(arg_SOURCES tkv_${name})
  add_library(tkv_${name} OBJECT ${arg_SOURCES})
  set_target_properties(tkv_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(tkv_${name} PUBLIC tkv_flags ${arg_DEPS})
  set_property(GLOBAL APPEND PROPERTY TKV_MODULES tkv_${name})
  if(TKV_BUILD_TESTS AND arg_TESTS)
    list(TRANSFORM arg_TESTS PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
    set_property(GLOBAL PROPERTY TKV_TESTS_${name} "${arg_TESTS}")
  endif()
endfunction()

set(TKV_TEST_TIMEOUT 300)  # seconds
if(TKV_SANITIZE)
  set(TKV_TEST_TIMEOUT 900)
endif()

# tkv_test(NAME SOURCES ... [SHARDS n] [TIMEOUT seconds] [LABELS ...] [C]): a GoogleTest program over the whole library; with C, a
# program in C that writes its results as GoogleTest does.  TIMEOUT is TKV_TEST_TIMEOUT by default.  Programs whose tests mostly
# wait for time to pass are run in shards, several at a time: NAME/1 to NAME/n for CTest, which starts those first.
function(tkv_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "C" "TIMEOUT;SHARDS" "SOURCES;LABELS")
  if(NOT arg_C)
    tkv_batches(arg_SOURCES ${name} SIZE 8)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE tkv)
  if(arg_C)
    set_target_properties(${name} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
    target_compile_options(${name} PRIVATE -pedantic -Wall -Wextra -Werror)
    target_compile_definitions(${name} PRIVATE _XOPEN_SOURCE=700)
  else()
    target_link_libraries(${name} PRIVATE GTest::gmock GTest::gtest_main)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT ${TKV_TEST_TIMEOUT})
  endif()
  set(entries ${name})
  if(arg_SHARDS)
    set(entries)
    foreach(shard RANGE 1 ${arg_SHARDS})
      list(APPEND entries ${name}/${shard})
    endforeach()
  endif()
  foreach(entry IN LISTS entries)
    string(REPLACE "/" "-" results ${entry})
    add_test(NAME ${entry} COMMAND ${name} --gtest_brief=1 "--gtest_output=json:${CMAKE_BINARY_DIR}/results/${results}.json")
    set_tests_properties(${entry} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
    if(arg_SHARDS)
      string(REPLACE "${name}/" "" shard ${entry})
      math(EXPR index "${shard} - 1")
      set_tests_properties(${entry} PROPERTIES COST 10 ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${index}")
    endif()
  endforeach()
  set_property(GLOBAL PROPERTY TKV_ENTRIES_${name} ${entries})
endfunction()
