package org.tensorkv;

import java.util.concurrent.atomic.AtomicLong;

/**
 * Has the garbage collector run before arrays that nobody has closed fill the memory: it does not see
 * how large they are. As a heap grows, the next time is at twice what was left.
 */
final class Pressure {
  private static final long FLOOR_BYTES = 256L << 20;
  private static final int LOOKS = 20;
  private static final int LOOK_MS = 5;

  private static final AtomicLong LIVE = new AtomicLong();
  private static volatile long limit = FLOOR_BYTES;

  private Pressure() {}

  /** Bytes of arrays that Java has made and that are not given back. */
  static long live() {
    return LIVE.get();
  }

  static void add(long bytes) {
    if (LIVE.addAndGet(bytes) > limit) {
      collect();
    }
  }

  static void remove(long bytes) {
    LIVE.addAndGet(-bytes);
  }

  private static synchronized void collect() {
    if (LIVE.get() <= limit) {
      return;  // another thread has
    }
    System.gc();
    // The thread that gives them back runs after it.
    for (int i = 0; i < LOOKS && LIVE.get() > limit / 2; i++) {
      try {
        Thread.sleep(LOOK_MS);
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
        break;
      }
    }
    limit = Math.max(FLOOR_BYTES, 2 * LIVE.get());
  }
}
