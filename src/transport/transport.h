// Carries frames between processes.
//
// A link is one connection.  Frames arrive whole and in the order in which they were sent in their
// direction; there is no order between links.  Each frame arrives at most once, unless a fault
// injector duplicates it.  A link that has lost a frame is closed.  An endpoint is used by one
// thread; only Wake may be called from any thread.

#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tkv/error.h"
#include "tkv/stats.h"
#include "wire/frame_layout.h"

namespace tkv {

// The receiver of an endpoint's events; Endpoint::Poll calls it.  If a function for a link throws
// std::bad_alloc, the endpoint may close that link and go on.
class LinkHandler {
 public:
  virtual ~LinkHandler() = default;
  // Returns the name of a new link, which another process has dialed.
  virtual uint64_t Accepted() = 0;
  virtual void Opened(uint64_t link) = 0;
  // Returns true if the peer that dialed this link is known to be a member.  Until then the peer
  // may send only heads, one after another, within FrameLimits::Unproved, and its time is limited.
  // Asked again for each frame.
  virtual bool IsWelcome(uint64_t /*link*/) { return true; }
  // Called when a link is lost, and when a dial has failed.  kUnauthenticated and
  // kFailedPrecondition: the peer rejects this process, so another dial is pointless.  kAborted:
  // the peer's process has ended.
  virtual void Closed(uint64_t link, const Error& reason) = 0;
  // Returns the memory for each body of the frame whose head has arrived; each block has its body's
  // size.  A body whose block has no memory is thrown away.  `lent` is the shared memory that
  // already holds the bodies, one after the other, until Received returns; the peer may still write
  // there.  Null: the bodies are still to arrive.
  //   throws  the fault of the head; the link is then closed
  virtual std::vector<Block> Land(uint64_t link, std::span<const std::byte> head,
                                  const std::byte* lent) = 0;
  // Called when all bodies of that frame have arrived in the memory that Land returned.
  virtual void Received(uint64_t link) = 0;
  // Returns false if Poll is to return early, because the node has other work that is due.  Asked
  // between events.
  virtual bool MayGoOn() { return true; }
};

// The end of the connections of one process.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  // Returns the address at which other processes dial this endpoint; empty if it does not listen.
  virtual const std::string& address() const = 0;
  // Dials an address.  The caller names the link by any number that it has not used before.
  virtual void Dial(uint64_t link, const std::string& address) = 0;
  // Sends a frame and never blocks.  The bodies are not copied at once: their memory is read until
  // they have left.  A frame for a link that is not open is dropped.
  virtual void Send(uint64_t link, Frame frame) = 0;
  // Closes a link.  Queued frames before the first one with bodies still leave; the others are
  // dropped.  On return no memory of the link's frames is used.  The handler is not called for this
  // link.
  virtual void Close(uint64_t link) = 0;
  // Takes memory back for its owner.  ReleaseSource copies the bodies that are still to be sent
  // from there.  ReleaseTarget throws away the bodies that are still to land there.  Memory may be
  // the source of one call and the target of another; each needs its own release.
  //   blocks  while a device uses the memory directly.  The endpoint ends that in a second at most,
  //           if necessary by ending the connection.  Sockets never block.  Callers hold their
  //           node's lock during this time, so the node does not count this time as silence of a
  //           peer.
  virtual void ReleaseSource(const void* data, size_t bytes) = 0;
  virtual void ReleaseTarget(const void* data, size_t bytes) = 0;
  // Delivers at most `events_max` events that have arrived, as long as the handler's MayGoOn
  // returns true.  Returns the number of events delivered.
  virtual size_t Poll(LinkHandler* handler, size_t events_max) = 0;
  // Waits for events.  Returns true if there is an event to poll or Wake was called, false after
  // the timeout.
  //   blocks  until an event, Wake, or the timeout
  virtual bool Wait(int64_t nanoseconds) = 0;
  virtual void Wake() = 0;
  // Returns the bytes that a link has carried; known until Close, or until LinkHandler::Closed
  // returns.
  virtual TrafficStats Traffic(uint64_t link) const = 0;
};

}  // namespace tkv
