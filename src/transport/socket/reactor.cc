#include "transport/socket/reactor.h"

#include <chrono>

namespace tkv {
namespace {

namespace asio = boost::asio;

template <typename Waiter>
void Await(const std::shared_ptr<ReadyList>& ready, Waiter* waiter,
           asio::socket_base::wait_type type, Readiness::Kind kind, uint64_t number) {
  ready->Expect([&] {
    waiter->async_wait(type, [ready, kind, number](const boost::system::error_code& error) {
      ready->Arrive({kind, number, error});
    });
  });
}

}  // namespace

int64_t SteadyNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool IsOutOfMeans(const boost::system::error_code& error) {
  return error == boost::system::errc::too_many_files_open ||            // of this process
         error == boost::system::errc::too_many_files_open_in_system ||  // of all
         error == boost::system::errc::not_enough_memory ||
         error == boost::system::errc::no_buffer_space;
}

Reactor::Reactor() : work_(asio::make_work_guard(context_)) {}

void Reactor::AwaitAccept(Acceptor* acceptor, uint64_t number) {
  Await(ready_, acceptor, asio::socket_base::wait_read, Readiness::Kind::kAccept, number);
}

void Reactor::AwaitRead(Socket* socket, uint64_t number) {
  Await(ready_, socket, asio::socket_base::wait_read, Readiness::Kind::kRead, number);
}

void Reactor::AwaitWrite(Socket* socket, uint64_t number) {
  Await(ready_, socket, asio::socket_base::wait_write, Readiness::Kind::kWrite, number);
}

void Reactor::Connect(Socket* socket, const asio::ip::tcp::endpoint& address, uint64_t number,
                      uint64_t attempt) {
  ready_->Expect([&] {
    socket->async_connect(
        address, [ready = ready_, number, attempt](const boost::system::error_code& error) {
          ready->Arrive({Readiness::Kind::kDialed, number, error, attempt});
        });
  });
}

void Reactor::ReadAgain(uint64_t number) { ready_->Add({Readiness::Kind::kRead, number, {}}); }

size_t Reactor::Collect() {
  if (context_.stopped()) context_.restart();
  context_.poll();
  return ready_->TakeWake();
}

bool Reactor::Wait(int64_t nanoseconds) {
  if (!ready_->IsIdle()) return true;
  const bool has_run = context_.run_one_for(std::chrono::nanoseconds(nanoseconds)) > 0;
  return has_run || context_.stopped();
}

void Reactor::Wake() {
  if (ready_->NoteWake()) context_.stop();
}

}  // namespace tkv
