// What is explored: a small job, the programs of its workers, and what may go wrong, once,
// anywhere.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "wire/message.h"

namespace tkv::exploration {

// A program is a word over
//   P push   L pull   X pushpull   B barrier   C control (the lowest rank that lives)
// Every worker begins with an init of the key; a program that begins with I does so while
// everything is explored, else the key is there.
struct Scope {
  std::string name;
  std::string program;         // of worker 0
  std::string second_program;  // of worker 1
  Epoch::Policy policy = Epoch::Policy::kFail;
  int losses = 0;             // of connections between a worker and a server, or the head
  int kills = 0;              // of workers
  bool zombie = false;        // the head may be told that a worker has ended that goes on
  bool restarts = false;      // whoever was killed or held for dead has a later life
  bool skips_epochs = false;  // an EPOCH may be overtaken by the next one
  bool splits = false;        // head and bodies of a frame arrive one after the other
  int reader_pulls = 0;       // of an observer
  uint32_t staleness = 0;
  bool by_rows = false;  // the key is kept by rows
  uint32_t admit_count = 1;
  bool is_large = false;  // not for every day
};

std::span<const Scope> Scopes();
//   throws  kInvalidArgument  there is no such scope
const Scope& ScopeNamed(const std::string& name);

}  // namespace tkv::exploration
