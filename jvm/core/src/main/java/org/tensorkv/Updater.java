package org.tensorkv;

/**
 * Combines the sum of a push with the stored value, by changing {@code stored} in place.
 *
 * <p>Runs on the thread that pushes, once for each key of the call. Both arrays are closed when it
 * returns. It may use the store, but not for a key of the call that it runs in. What it throws
 * reaches the caller of the push, and then no key of that call has changed.
 */
@FunctionalInterface
public interface Updater {
  void update(Key key, NDArray sum, NDArray stored);
}
