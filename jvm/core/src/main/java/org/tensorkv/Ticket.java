package org.tensorkv;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/**
 * A call under way. The arrays of the call are kept until it has ended; outputs are undefined until
 * then. Thread-safe.
 */
public final class Ticket implements AutoCloseable {
  private final Handle handle;
  private final Throwable thrown;

  /** Owns a ticket of the library, and what an updater has thrown in its call. */
  Ticket(long address, Throwable thrown) {
    handle = Handle.of(this, address, "Ticket", Native::tkv_ticket_release);
    this.thrown = thrown;
  }

  public boolean isDone() {
    try (Call call = new Call()) {
      return Native.tkv_ticket_is_done(call.use(handle)) != 0;
    }
  }

  /** {@link #await(Duration)} of ten minutes. */
  public void await() {
    await(Patience.OF_CALLS);
  }

  /**
   * Blocks until the call has ended.
   *
   * @throws KVException what the call has ended with; {@link Code#DEADLINE_EXCEEDED}: it has not
   *     ended in so long, and goes on; {@link Code#CANCELLED}: this thread was interrupted
   */
  public void await(Duration patience) {
    try (Call call = new Call()) {
      long longest = Patience.millis(KVException.required(patience, "await"));
      int code = Native.tkv_ticket_wait(call.use(handle), longest, call.error());
      if (code != Code.OK && thrown != null) {
        call.fails(thrown);
      }
      call.check(code);
    }
  }

  /** Gives the call up. False where it had ended before. */
  public boolean cancel() {
    try (Call call = new Call()) {
      return Native.tkv_ticket_cancel(call.use(handle)) != 0;
    }
  }

  /**
   * A future that is done when the call has ended: with null, or exceptionally with what {@link
   * #await()} would throw. To cancel it gives the call up; to close the ticket does not touch it.
   *
   * <p>What is hung on it without an executor, as by {@code thenRun}, runs on one thread for all
   * futures: what takes long or waits belongs to {@code thenRunAsync}.
   */
  public CompletableFuture<Void> toCompletableFuture() {
    try (Call call = new Call()) {
      long address = call.use(handle);
      TicketFuture future = new TicketFuture(new Ticket(Native.tkv_ticket_retain(address), thrown));
      Events.Subscription end = Events.subscribe(future);
      int code =
          Native.tkv_ticket_on_end(address, Native.end_function(), end.address(), 0, call.error());
      if (code != Code.OK) {
        end.drop();
      }
      call.check(code);
      return future;
    }
  }

  /** The call goes on. */
  @Override
  public void close() {
    handle.close();
  }
}
