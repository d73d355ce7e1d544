// The reactor of an endpoint: waits until sockets are ready, and queues what it has seen.
//
// Nothing runs inside of the reactor's callbacks: they only queue an event, which the endpoint
// takes and handles.  An endpoint has one reactor.  A single thread uses it; only Wake and
// Interrupt may be called from any thread.

#pragma once

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <memory>
#include <optional>

#include "transport/socket/ready_list.h"

namespace tkv {

// Returns the time of the steady clock, in nanoseconds.
int64_t SteadyNow();
// Returns true if the system lacks descriptors or memory for a connection.  Another try at once
// would fail in the same way.
bool IsOutOfMeans(const boost::system::error_code& error);

// Waits for sockets.  Every function that starts a wait throws std::bad_alloc if memory is lacking;
// nothing has changed then.
class Reactor {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;

  //   throws  boost::system::system_error  the system has no descriptors left
  Reactor();

  boost::asio::io_context* context() { return &context_; }

  // Start a wait for one event.  `number` is the number that the event will have.
  void AwaitAccept(Acceptor* acceptor, uint64_t number);
  void AwaitRead(Socket* socket, uint64_t number);
  void AwaitWrite(Socket* socket, uint64_t number);
  // Connects to an address; the event kDialed reports the result.
  void Connect(Socket* socket, const boost::asio::ip::tcp::endpoint& address, uint64_t number,
               uint64_t attempt);
  // Queues an event kRead without waiting for the socket.
  void ReadAgain(uint64_t number);

  // Queues the events that the sockets have now, and forgets the calls of Wake.  Returns the number
  // of events.
  size_t Collect();
  std::optional<Readiness> Take() { return ready_->Take(); }
  // Waits for events.  Returns true if there is one, or Wake or Interrupt was called.
  //   blocks  until an event, Wake, Interrupt, or the timeout
  bool Wait(int64_t nanoseconds);
  // Ends the present or the next Wait.  Wake is remembered until Collect, and takes no memory.
  void Wake();
  void Interrupt() { context_.stop(); }

 private:
  const std::shared_ptr<ReadyList> ready_ = std::make_shared<ReadyList>();
  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
};

}  // namespace tkv
