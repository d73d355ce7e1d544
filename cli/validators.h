// Checks of the values of options, shared by the subcommands.

#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <string>

#include "programs.h"

namespace tkv::cli {

// Refuses an empty text, for example from "$HOSTS" where HOSTS is unset.
inline const CLI::Validator kNotEmpty(
    [](const std::string& text) { return std::string(text.empty() ? "is empty" : ""); }, "");

// Refuses a host that looks like an option, because ssh would take it for one.
inline const CLI::Validator kHost(
    [](const std::string& text) {
      return std::string(text.empty() || text[0] == '-' ? "is no name of a host" : "");
    },
    "");

// Refuses a text that cannot stand in the name of a Unix socket beside the digits of the job.
inline const CLI::Validator kNameOfJob(
    [](const std::string& text) {
      constexpr size_t kBytesMax = 40;
      const bool is_plain = std::ranges::all_of(text, [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
      });
      return std::string(is_plain && !text.empty() && text.size() <= kBytesMax && text[0] != '-'
                             ? ""
                             : "is no name of 1 to 40 letters, digits, '-', '.' and '_'");
    },
    "");

// Refuses a text that is not a whole number from 0 to 2^64 - 1.  The parser alone would wrap
// negative numbers and cut large ones.
inline const CLI::Validator kNatural(
    [](const std::string& text) {
      uint64_t number = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      const bool is_one = error == std::errc() && end == text.data() + text.size();
      return std::string(is_one ? "" : "is no whole number from 0 to 2^64 - 1");
    },
    "");

// Allows a number within bounds.  The bounds appear in the error, not in the help.
template <typename Number>
CLI::Validator Between(Number low, Number high) {
  return CLI::Range(low, high).description("");
}

inline const CLI::Validator kThreads = Between(1, 256);
inline const CLI::Validator kProcesses = Between(1, kWorkersMax);  // of a kind, in one job

}  // namespace tkv::cli
