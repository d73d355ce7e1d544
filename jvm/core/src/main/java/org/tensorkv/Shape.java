package org.tensorkv;

import java.util.Arrays;
import java.util.stream.Collectors;

/** The lengths of an array's axes. Immutable. */
public final class Shape {
  private final long[] lengths;

  private Shape(long[] lengths) {
    this.lengths = lengths;
  }

  /** None: one element. */
  public static Shape of(long... lengths) {
    return new Shape(KVException.required(lengths, "Shape: lengths").clone());
  }

  /** The number of axes. */
  public int rank() {
    return lengths.length;
  }

  /**
   * The length of an axis; negative ones count from the last.
   *
   * @throws KVException {@link Code#OUT_OF_RANGE}
   */
  public long get(int axis) {
    int index = axis < 0 ? axis + lengths.length : axis;
    if (index < 0 || index >= lengths.length) {
      throw new KVException(Code.OUT_OF_RANGE, "Shape " + this + ": axis " + axis);
    }
    return lengths[index];
  }

  /**
   * The number of elements.
   *
   * @throws KVException {@link Code#INVALID_ARGUMENT}: more than an int64 counts
   */
  public long size() {
    long size = 1;
    for (long length : lengths) {
      if (Math.multiplyHigh(size, length) != size * length >> 63) {
        throw KVException.invalid("Shape " + this + ": more elements than an int64 counts");
      }
      size *= length;
    }
    return size;
  }

  public long[] toArray() {
    return lengths.clone();
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Shape shape && Arrays.equals(lengths, shape.lengths);
  }

  @Override
  public int hashCode() {
    return Arrays.hashCode(lengths);
  }

  /** {@code "(2, 3)"}, {@code "(2,)"}. */
  @Override
  public String toString() {
    String all = Arrays.stream(lengths).mapToObj(Long::toString).collect(Collectors.joining(", "));
    return "(" + all + (lengths.length == 1 ? ",)" : ")");
  }
}
