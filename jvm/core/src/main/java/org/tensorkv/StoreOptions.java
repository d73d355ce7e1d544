package org.tensorkv;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.BiConsumer;

/** Options of a store or server by the names of docs/options.md, beside those of the environment. */
final class StoreOptions {
  /** Those of a {@code tkv_log}. */
  private static final System.Logger.Level[] LEVELS = {
    System.Logger.Level.DEBUG,
    System.Logger.Level.INFO,
    System.Logger.Level.WARNING,
    System.Logger.Level.ERROR
  };

  private final Map<String, String> options = new LinkedHashMap<>();
  private boolean ignoresEnvironment = false;
  private BiConsumer<System.Logger.Level, String> log = null;

  void set(String name, Object value) {
    KVException.required(name, "option");
    options.put(name, KVException.required(value, "option '" + name + "'").toString());
  }

  void ignoreEnvironment() {
    ignoresEnvironment = true;
  }

  void log(BiConsumer<System.Logger.Level, String> log) {
    this.log = log;
  }

  /** A {@code tkv_store_options}, and the listener to the log in it, or null. */
  record Written(long address, Events.Subscription log) {
    /** Where the library has not taken it. */
    void drop() {
      if (log != null) {
        log.drop();
      }
    }
  }

  /** Waits of the calling thread end where it is interrupted. */
  Written write(Call call) {
    Block list = call.block(16L * options.size());
    options.forEach(
        (name, value) -> list.i64(call.text(name, "option")).i64(call.text(value, "option")));
    Block struct = call.block(80).i64(0).i64(list.address).i64(options.size());
    Events.Subscription lines = log == null ? null : Events.subscribe(listener(log));
    struct.bool(ignoresEnvironment);
    struct.i64(lines == null ? 0 : Native.log_function());
    struct.i64(lines == null ? 0 : lines.address());
    struct.i64(lines == null ? 0 : Native.end_function());
    struct.i64(Native.interrupt_function()).i64(0).i64(0);
    return new Written(struct.sized(), lines);
  }

  private static Events.Listener listener(BiConsumer<System.Logger.Level, String> log) {
    return new Events.Listener() {
      @Override
      public void line(int level, String text) {
        log.accept(LEVELS[level], text);
      }
    };
  }
}
