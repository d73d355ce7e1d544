package org.tensorkv.scala

/** Combines the sum of a push with the stored value, by changing `stored` in place: `stored += input * 2`.
  *
  * Runs on the thread that pushes. `input` and `stored` are disposed when it returns. What it throws reaches the caller of the push, and then no key of
  * that call has changed.
  */
trait MXKVStoreUpdater {
  def update(key: Int, input: NDArray, stored: NDArray): Unit

  /** Of a text key; `index` counts the text keys of the store in the order of init. As in MXNet, that index is what an updater sees that does not override
    * this.
    */
  def update(key: String, index: Int, input: NDArray, stored: NDArray): Unit = update(index, input, stored)

  /** Called when another one takes its place, or the store is disposed. */
  def dispose(): Unit
}
