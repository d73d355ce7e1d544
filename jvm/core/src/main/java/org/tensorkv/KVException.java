package org.tensorkv;

/**
 * What TensorKV throws: a {@link #code} and a message of the form {@code verb 'key': what was found,
 * what was wanted}. A call that throws has changed nothing.
 */
public final class KVException extends RuntimeException {
  private static final long serialVersionUID = 1;

  private final Code code;

  /** For updaters and other code that speaks for the store. */
  public KVException(Code code, String message) {
    super(message);
    this.code = code;
  }

  KVException(Code code, String message, Throwable cause) {
    super(message, cause);
    this.code = code;
  }

  /** What kind of error it is. */
  public Code code() {
    return code;
  }

  @Override
  public String toString() {
    return getClass().getName() + ": " + code + ": " + getMessage();
  }

  static KVException invalid(String message) {
    return new KVException(Code.INVALID_ARGUMENT, message);
  }

  /** The argument, unless it is null. */
  static <T> T required(T argument, String what) {
    if (argument == null) {
      throw invalid(what + ": null");
    }
    return argument;
  }

  /** The argument, unless it is negative, which the library would read as a large number. */
  static long notNegative(long number, String what) {
    if (number < 0) {
      throw invalid(what + " is " + number + ", 0 or more was wanted");
    }
    return number;
  }
}
