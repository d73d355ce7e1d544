package org.tensorkv;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The objects that the library holds by number: updaters, and buffers whose memory arrays use. Each
 * is kept until the library has freed its context, which the next call of {@link #drain} learns.
 */
final class Contexts {
  private static final Map<Long, Object> KEPT = new ConcurrentHashMap<>();
  private static final AtomicLong LAST = new AtomicLong();

  private Contexts() {}

  /** An object that is kept, and the context that stands for it in the library. */
  record Kept(long id, long address) {
    /** Where the library has not taken the context. */
    void drop() {
      KEPT.remove(id);
      Native.context_release(address);
    }
  }

  static Kept keep(Object object) {
    drain();
    long id = LAST.incrementAndGet();
    long address = Native.context_create(id);
    if (address == 0) {
      throw new KVException(Code.RESOURCE_EXHAUSTED, "keep: no memory for a context");
    }
    KEPT.put(id, object);
    return new Kept(id, address);
  }

  static Object get(long id) {
    return KEPT.get(id);
  }

  static boolean isKept(Object object) {
    return KEPT.values().stream().anyMatch(kept -> kept == object);
  }

  static int size() {
    return KEPT.size();
  }

  static void drain() {
    if (KEPT.isEmpty()) {
      return;
    }
    for (long id = Native.context_next(); id != 0; id = Native.context_next()) {
      KEPT.remove(id);
    }
  }
}
