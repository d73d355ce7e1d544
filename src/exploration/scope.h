// Defines what is explored: a small job, the programs of its workers, and a few faults.  A fault
// may happen at any point.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "wire/message.h"

namespace tkv::exploration {

// A job to be explored.  A program is a text of these letters:
//   P push   L pull   X pushpull   B barrier   C control (sent by the lowest live rank)
//
// Every worker first initializes the key.  If a program begins with I, the init is part of the
// exploration.  Otherwise the key exists when the exploration begins.
struct Scope {
  std::string name;
  std::string program;         // program of worker 0
  std::string second_program;  // program of worker 1
  Epoch::Policy policy = Epoch::Policy::kFail;
  int losses = 0;             // lost connections between a worker and a server or the head
  int kills = 0;              // killed workers
  bool zombie = false;        // the head may be told that a running worker has ended
  bool restarts = false;      // a worker that was killed or declared dead has a later incarnation
  bool skips_epochs = false;  // an EPOCH may be replaced by the next one on its way
  bool splits = false;        // head and bodies of a frame arrive as two events
  int reader_pulls = 0;       // pulls of an observer
  uint32_t staleness = 0;
  bool by_rows = false;  // the key is sparse
  uint32_t admit_count = 1;
  bool is_large = false;  // too large for daily runs
};

std::span<const Scope> Scopes();
// Returns the scope with this name.
//   throws  kInvalidArgument (no such scope)
const Scope& ScopeNamed(const std::string& name);

}  // namespace tkv::exploration
