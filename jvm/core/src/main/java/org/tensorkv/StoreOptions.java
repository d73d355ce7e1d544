package org.tensorkv;

import java.util.LinkedHashMap;
import java.util.Map;

/** Options of a store or server by the names of docs/options.md, beside those of the environment. */
final class StoreOptions {
  private final Map<String, String> options = new LinkedHashMap<>();
  private boolean ignoresEnvironment = false;

  void set(String name, Object value) {
    KVException.required(name, "option");
    options.put(name, KVException.required(value, "option '" + name + "'").toString());
  }

  void ignoreEnvironment() {
    ignoresEnvironment = true;
  }

  /** A {@code tkv_store_options}. Waits of the calling thread end where it is interrupted. */
  long write(Call call) {
    Block list = call.block(16L * options.size());
    options.forEach(
        (name, value) -> list.i64(call.text(name, "option")).i64(call.text(value, "option")));
    Block struct = call.block(80).i64(0).i64(list.address).i64(options.size());
    struct.bool(ignoresEnvironment).i64(0).i64(0).i64(0);
    return struct.i64(Native.interrupt_function()).i64(0).i64(0).sized();
  }
}
