package org.tensorkv;

import java.time.Duration;

/** How long waits last. */
final class Patience {
  /** For a call under way, where the caller says nothing: that of a store. */
  static final Duration OF_CALLS = Duration.ofMinutes(10);

  /** For stores to close when the virtual machine ends. */
  static final Duration OF_THE_END = Duration.ofSeconds(5);

  /** The longest that the library takes. */
  private static final Duration CENTURY = Duration.ofDays(36_525);

  private Patience() {}

  /** In milliseconds, as the library counts. */
  static long millis(Duration patience) {
    if (patience.isNegative()) {
      return -1;  // which the library refuses
    }
    return (patience.compareTo(CENTURY) > 0 ? CENTURY : patience).toMillis();
  }
}
