package org.tensorkv;

/**
 * Where an array lives. Every {@code cpu(i)} is host memory: the index only says which worker the
 * value stands for.
 */
public record Context(Kind kind, int index) {
  /** The kinds of devices. */
  public enum Kind {
    CPU(1),
    GPU(2);

    private final int number;

    Kind(int number) {
      this.number = number;
    }

    /** The number in tkv.h. */
    public int number() {
      return number;
    }
  }

  public Context {
    KVException.required(kind, "Context: kind");
  }

  /** {@code cpu(0)}. */
  public static Context cpu() {
    return cpu(0);
  }

  public static Context cpu(int index) {
    return new Context(Kind.CPU, index);
  }

  /** {@code gpu(0)}. */
  public static Context gpu() {
    return gpu(0);
  }

  /** Arrays there are {@link Code#UNIMPLEMENTED} on a machine without such a device. */
  public static Context gpu(int index) {
    return new Context(Kind.GPU, index);
  }

  /** {@code "cpu(0)"}. */
  @Override
  public String toString() {
    return (kind == Kind.CPU ? "cpu(" : "gpu(") + index + ")";
  }

  /** As {@code tkv_context} lies in memory. */
  long packed() {
    return (long) index << 32 | kind.number;
  }

  static Context of(long packed) {
    Kind kind = (int) packed == Kind.GPU.number ? Kind.GPU : Kind.CPU;
    return new Context(kind, (int) (packed >> 32));
  }
}
