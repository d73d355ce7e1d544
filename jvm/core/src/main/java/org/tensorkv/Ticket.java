package org.tensorkv;

import java.time.Duration;

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

  /** The call goes on. */
  @Override
  public void close() {
    handle.close();
  }
}
