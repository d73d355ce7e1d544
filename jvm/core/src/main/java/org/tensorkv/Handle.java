package org.tensorkv;

import java.lang.ref.Cleaner;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongConsumer;

/**
 * An object of the library. It is given back once it is closed, or its owner in Java is unreachable,
 * and no call uses it any more.
 */
final class Handle implements Runnable {
  private static final Cleaner CLEANER = Cleaner.create();
  private static final int CLOSED = 1;
  private static final int USER = 2;

  private final long address;
  private final String what;
  private final LongConsumer release;
  private final AtomicInteger state = new AtomicInteger();  // users, and whether it is closed

  private Handle(long address, String what, LongConsumer release) {
    this.address = address;
    this.what = what;
    this.release = release;
  }

  /** Owns `address`, which belongs to `owner`. */
  static Handle of(Object owner, long address, String what, LongConsumer release) {
    Handle handle = new Handle(address, what, release);
    CLEANER.register(owner, handle);
    return handle;
  }

  /**
   * The address, for a call that ends with {@link #leave}.
   *
   * @throws KVException {@link Code#FAILED_PRECONDITION}: it is closed
   */
  long enter() {
    for (int old = state.get(); (old & CLOSED) == 0; old = state.get()) {
      if (state.compareAndSet(old, old + USER)) {
        return address;
      }
    }
    throw new KVException(Code.FAILED_PRECONDITION, what + ": closed, an open one was wanted");
  }

  void leave() {
    if (state.addAndGet(-USER) == CLOSED) {
      free();
    }
  }

  boolean isClosed() {
    return (state.get() & CLOSED) != 0;
  }

  /** Closes it; a second time does nothing. */
  void close() {
    int old = state.getAndUpdate(value -> value | CLOSED);
    if (old == 0) {
      free();
    }
  }

  @Override
  public void run() {
    close();
  }

  private void free() {
    release.accept(address);
    Contexts.drain();
  }
}
