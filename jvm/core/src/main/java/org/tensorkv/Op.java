package org.tensorkv;

/** An operation on two arrays, element by element. Comparisons give 1 or 0 in the arrays' dtype. */
public enum Op {
  ADD(0),
  SUB(1),
  MUL(2),
  DIV(3),
  MIN(4),
  MAX(5),
  LESS(6),
  LESS_EQUAL(7),
  GREATER(8),
  GREATER_EQUAL(9),
  EQUAL(10),
  NOT_EQUAL(11);

  private final int number;

  Op(int number) {
    this.number = number;
  }

  /** The number in tkv.h. */
  public int number() {
    return number;
  }
}
