package org.tensorkv;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * An update as data, which runs in the store or on its servers: a built-in by name, or a program. A
 * store that was given one sees later changes of hyperparameters at the next push. Thread-safe.
 */
public final class Optimizer implements AutoCloseable {
  private final Handle handle;

  private Optimizer(long address) {
    handle = Handle.of(this, address, "Optimizer", Native::tkv_optimizer_release);
  }

  /**
   * A built-in.
   *
   * @param name {@code "sgd"}, {@code "momentum"}, {@code "adam"} and the others of tkv/optimizer.h
   * @param params hyperparameters other than their defaults, such as {@code learning_rate}
   * @throws KVException {@link Code#NOT_FOUND}: no such built-in; {@link Code#INVALID_ARGUMENT}: no
   *     such hyperparameter
   */
  public static Optimizer create(String name, Map<String, Double> params) {
    Builder builder = builder(name);
    String what = "Optimizer '" + name + "': ";
    KVException.required(params, what + "params")
        .forEach((param, value) -> builder.set(param, KVException.required(value, what + param)));
    return builder.build();
  }

  /** A built-in with its defaults. */
  public static Optimizer create(String name) {
    return builder(name).build();
  }

  /** An update program: the text of docs/programs.md. */
  public static Optimizer program(String text) {
    return new Builder(text, true).build();
  }

  /** For a built-in with options. */
  public static Builder builder(String name) {
    return new Builder(name, false);
  }

  /** For an update program with options. */
  public static Builder programBuilder(String text) {
    return new Builder(text, true);
  }

  /** Hyperparameters and options of an optimizer. */
  public static final class Builder {
    private final String text;
    private final boolean isProgram;
    private final Map<String, Double> params = new LinkedHashMap<>();
    private boolean multiPrecision = false;
    private boolean lazy = true;

    private Builder(String text, boolean isProgram) {
      this.text = KVException.required(text, "Optimizer");
      this.isProgram = isProgram;
    }

    /** A hyperparameter other than its default. */
    public Builder set(String name, double value) {
      params.put(KVException.required(name, "Optimizer: hyperparameter"), value);
      return this;
    }

    /** Whether float16 and bfloat16 keys keep a float32 master; default false. */
    public Builder multiPrecision(boolean multiPrecision) {
      this.multiPrecision = multiPrecision;
      return this;
    }

    /** Whether only rows that a push brings are updated; default true. */
    public Builder lazy(boolean lazy) {
      this.lazy = lazy;
      return this;
    }

    public Optimizer build() {
      try (Call call = new Call()) {
        Block list = call.block(16L * params.size());
        params.forEach((name, value) -> list.i64(call.text(name, "Optimizer")).f64(value));
        long source = call.text(text, "Optimizer");
        Block struct = call.block(32).i64(0).i64(list.address).i64(params.size());
        long options = struct.bool(multiPrecision).bool(!lazy).sized();
        call.check(
            isProgram
                ? Native.tkv_optimizer_from_program(source, options, call.out(), call.error())
                : Native.tkv_optimizer_create(source, options, call.out(), call.error()));
        return new Optimizer(call.outLong());
      }
    }
  }

  /**
   * A hyperparameter's value.
   *
   * @throws KVException {@link Code#INVALID_ARGUMENT}: it has none of that name
   */
  public double get(String name) {
    try (Call call = new Call()) {
      long text = call.text(KVException.required(name, "Optimizer: hyperparameter"), "Optimizer");
      call.check(
          Native.tkv_optimizer_param(call.use(handle), text, call.out(), call.error()));
      return call.outDouble();
    }
  }

  /** Changes a hyperparameter from the next push on. */
  public Optimizer set(String name, double value) {
    try (Call call = new Call()) {
      long text = call.text(KVException.required(name, "Optimizer: hyperparameter"), "Optimizer");
      call.check(
          Native.tkv_optimizer_set_param(call.use(handle), text, value, call.error()));
      return this;
    }
  }

  /** For `key` the hyperparameter counts `factor` times its value. */
  public Optimizer setMultiplier(String name, Key key, double factor) {
    try (Call call = new Call()) {
      long text = call.text(KVException.required(name, "Optimizer: hyperparameter"), "Optimizer");
      long pair = call.key(key, "Optimizer: key");
      call.check(
          Native.tkv_optimizer_set_multiplier(
              call.use(handle), text, pair, factor, call.error()));
      return this;
    }
  }

  Handle handle() {
    return handle;
  }

  /** A store that was given it goes on with it; a second time does nothing. */
  @Override
  public void close() {
    handle.close();
  }
}
