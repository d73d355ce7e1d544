package org.tensorkv;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;

/**
 * Listeners to what the library tells on threads of its own. One thread of Java's takes it to all of
 * them; it begins with the first listener, and ends once there has been none and nothing to tell for
 * a pause, so that calls one after the other do not begin a thread each.
 */
final class Events {
  static final Duration PAUSE = Duration.ofSeconds(1);

  /** Between two looks whether anybody listens still; tests have a longer one. */
  static volatile Duration pause = PAUSE;

  private static final int LAST = -1;
  private static final int WARNING = 2;

  private static final Map<Long, Listener> LISTENERS = new HashMap<>();  // guarded by this class
  private static long newest = 0;
  private static boolean isRunning = false;

  private Events() {}

  /** What a thread that is not the listener's calls; it does not block it. */
  interface Listener {
    /** A line of a log; level: 0 debug to 3 error. */
    default void line(int level, String text) {}

    /** Nothing follows. */
    default void end() {}
  }

  /** The context that stands for a listener in the library. */
  record Subscription(long address) {
    /** Where the library has not taken the context; the lines that it has told come before the end. */
    void drop() {
      Native.event_end(address);
    }
  }

  static synchronized Subscription subscribe(Listener listener) {
    if (!isRunning) {
      Thread thread = new Thread(null, Events::run, "tensorkv-events", 0, false);
      thread.setDaemon(true);
      thread.start();
      isRunning = true;
    }
    long address = Native.event_last(++newest);
    if (address == 0) {
      throw new KVException(Code.RESOURCE_EXHAUSTED, "listen: no memory for a listener");
    }
    LISTENERS.put(newest, listener);
    return new Subscription(address);
  }

  private static synchronized Listener forget(long id) {
    return LISTENERS.remove(id);
  }

  private static synchronized Listener find(long id) {
    return LISTENERS.get(id);
  }

  private static synchronized boolean goesOn(boolean wasIdle) {
    isRunning = !wasIdle || !LISTENERS.isEmpty();
    return isRunning;
  }

  private static void run() {
    boolean wasIdle = false;
    while (goesOn(wasIdle)) {
      long event = Native.event_take(pause.toMillis());
      wasIdle = event == 0;
      if (!wasIdle) {
        tell(event);
      }
      Thread.interrupted();  // what a listener has left behind
    }
  }

  private static void tell(long event) {
    try {
      long id = Native.event_listener(event);
      int level = Native.event_level(event);
      if (level == LAST) {
        Listener listener = forget(id);
        long lost = Native.event_lost(event);
        if (lost > 0) {
          listener.line(WARNING, "the last " + lost + " lines were lost");
        }
        listener.end();
      } else {
        find(id).line(level, Memory.text(Native.event_text(event)));
      }
    } catch (Throwable thrown) {
      System.getLogger("org.tensorkv").log(System.Logger.Level.WARNING, "a listener has thrown", thrown);
    } finally {
      Native.event_release(event);
    }
  }
}
