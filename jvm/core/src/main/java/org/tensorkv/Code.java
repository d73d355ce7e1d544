package org.tensorkv;

/** What kind of error a {@link KVException} is. The numbers are those of gRPC's status codes. */
public enum Code {
  /** The caller has given the call up, or its thread was interrupted. */
  CANCELLED(1),
  /** An argument cannot be right, whatever the state of the store. */
  INVALID_ARGUMENT(3),
  /** A wait was longer than its patience. */
  DEADLINE_EXCEEDED(4),
  /** There is no such key, file or name. */
  NOT_FOUND(5),
  /** There is such a key already. */
  ALREADY_EXISTS(6),
  /** Memory or another resource is used up. */
  RESOURCE_EXHAUSTED(8),
  /** The state of the object does not allow the call: it is closed, for instance. */
  FAILED_PRECONDITION(9),
  /** The call was ended by something else than its arguments: an updater that throws, another life. */
  ABORTED(10),
  /** An index is beyond the bounds. */
  OUT_OF_RANGE(11),
  /** This build or this machine cannot do it. */
  UNIMPLEMENTED(12),
  /** A fault of TensorKV. */
  INTERNAL(13),
  /** A server or worker is gone. */
  UNAVAILABLE(14),
  /** What was stored or sent is damaged. */
  DATA_LOSS(15),
  /** A peer has not proved that it belongs to the job. */
  UNAUTHENTICATED(16);

  static final int OK = 0;

  private final int number;

  Code(int number) {
    this.number = number;
  }

  /** The number in tkv.h. */
  public int number() {
    return number;
  }

  static Code of(int number) {
    for (Code code : values()) {
      if (code.number == number) {
        return code;
      }
    }
    return INTERNAL;
  }
}
