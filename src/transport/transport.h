// How frames travel between processes.
//
// A link is one connection: frames arrive whole, each at most once unless a fault injector says
// otherwise, and those of one direction in order; no order holds between links.  A link that has
// lost a frame is closed.  An endpoint is used by one thread; Wake may be called from any.

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

// Told by Endpoint::Poll what has happened.
class LinkHandler {
 public:
  virtual ~LinkHandler() = default;
  // Somebody has dialed this endpoint: names the new link.
  virtual uint64_t Accepted() = 0;
  virtual void Opened(uint64_t link) = 0;
  // Whether who has dialed this link is known to belong here.  Until then it may send one head after
  // another within FrameLimits::Unproved and nothing else, and has little time; asked again for each
  // frame.
  virtual bool IsWelcome(uint64_t /*link*/) { return true; }
  // Also where a dial has failed.  kUnauthenticated and kFailedPrecondition say that the peer does
  // not want this process, and that there is no use in dialing it again; kAborted, that its process
  // has ended.
  virtual void Closed(uint64_t link, const Error& reason) = 0;
  // The head of a frame is here: says where each of its bodies is to land, in its size; a block
  // without memory does not take that body.  `lent`: where the bodies lie already, one behind the
  // other, until Received returns; another process may write there.  Null: they are still to come.
  //   throws  what is wrong with the head; the link is then closed
  virtual std::vector<Block> Land(uint64_t link, std::span<const std::byte> head,
                                  const std::byte* lent) = 0;
  // The bodies of that frame are in their place.
  virtual void Received(uint64_t link) = 0;
  // Asked between events.  Returns false if Poll is to come back with what is left undone, because the
  // node has something else to do in time.
  virtual bool MayGoOn() { return true; }
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;
  // What others dial to reach it; empty where it does not listen.
  virtual const std::string& address() const = 0;
  // Links of this endpoint are named by its user: any number not used before.
  virtual void Dial(uint64_t link, const std::string& address) = 0;
  // Never blocks; bodies are referred to until they have been copied.  A link that is not open
  // swallows the frame.
  virtual void Send(uint64_t link, Frame frame) = 0;
  // After what has been sent.  The handler is not told, and no memory of the link's frames is used
  // when this returns: bodies that have not left are not sent.
  virtual void Close(uint64_t link) = 0;
  // The owner of memory takes it back.  Of a source, what is still to be sent from there is copied;
  // of a target, what is still to land there is thrown away.  Memory may be the source of one call
  // and the target of another one: each is taken back by itself.
  //   blocks  where a device reads or writes the memory by itself: until it has stopped, which the
  //           endpoint brings about in a second at most, by ending the connection if need be.
  //           Sockets never block.  Callers hold the lock of their node meanwhile; a node counts
  //           time in which it did not read as nobody's silence.
  virtual void ReleaseSource(const void* data, size_t bytes) = 0;
  virtual void ReleaseTarget(const void* data, size_t bytes) = 0;
  // Delivers what has arrived, at most `events_max`, as long as the handler may go on.  Returns the
  // number delivered.
  virtual size_t Poll(LinkHandler* handler, size_t events_max) = 0;
  //   blocks  until there is something to poll, Wake, or the time; true in the first two cases
  virtual bool Wait(int64_t nanoseconds) = 0;
  virtual void Wake() = 0;
  // What has passed a link, until Close or the end of LinkHandler::Closed.
  virtual TrafficStats Traffic(uint64_t link) const = 0;
};

}  // namespace tkv
