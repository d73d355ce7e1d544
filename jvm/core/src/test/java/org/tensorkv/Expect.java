package org.tensorkv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** What several suites expect in the same words. */
final class Expect {
  private Expect() {}

  /** That `call` throws a KVException of this code, whose message has `part` in it. */
  static void fails(Code code, String part, Runnable call) {
    KVException error = assertThrows(KVException.class, call::run);
    assertEquals(code, error.code(), error.getMessage());
    assertTrue(error.getMessage().contains(part), error.getMessage());
  }

  /** That all elements are `value`. */
  static void all(double value, NDArray array) {
    for (double element : array.toDoubleArray()) {
      assertEquals(value, element);
    }
  }
}
