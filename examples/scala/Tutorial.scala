import org.tensorkv.scala._

/** A walk through the store with the names of MXNet's Scala package. */
object Tutorial {
  private val shape = Shape(2, 3)

  def main(arguments: Array[String]): Unit = ResourceScope.using() { // what is made here is disposed at its end
    val kv = KVStore.create()

    // A key has the shape and dtype of the value that it starts with. Keys are numbers or texts.
    val a = NDArray.zeros(shape)
    kv.init(3, NDArray.ones(shape) * 2)
    kv.pull(3, out = a)
    shows("a key starts with its value", a, 2)

    // Several workers: the values of one push are summed.
    val workers = Array.tabulate(4)(i => NDArray.ones(shape, Context.cpu(i)))
    kv.push(3, workers)
    kv.pull(3, out = a)
    shows("a push stores the sum of its values", a, 4)

    // An updater combines the sum with what is stored, by changing it in place.
    kv.setUpdater(new MXKVStoreUpdater {
      override def update(key: Int, input: NDArray, stored: NDArray): Unit = {
        println(s"update on key $key")
        stored += input * 2
      }
      override def dispose(): Unit = println("the updater is not needed any more")
    })
    kv.push(3, NDArray.ones(shape))
    kv.pull(3, outs = workers)
    shows("stored + 2 * sum, in every output", workers(1), 6)

    // The same update as data, which runs on the servers of a job too.
    kv.setUpdater("program twice\ndouble = mul sum 2\nw = add value double\nvalue <- w\n")
    kv.push(3, NDArray.ones(shape))
    kv.pull(3, out = a)
    shows("a program does the same", a, 8)

    // An optimizer takes the stored value as a weight and the sum as its gradient.
    kv.setOptimizer(Optimizer("sgd", "learning_rate" -> 0.5))
    kv.push(3, NDArray.ones(shape))
    kv.pull(3, out = a)
    shows("one step of SGD", a, 7.5f)

    // Several keys in one call.
    val keys = Array(5, 7, 9)
    kv.init(keys, keys.map(key => NDArray.full(shape, key.toFloat)))
    val outs = keys.map(_ => NDArray.empty(shape))
    kv.pull(keys, outs = outs)
    for ((key, out) <- keys.zip(outs)) shows(s"key $key", out, key.toFloat)

    // What is wrong is an error that names the key, and changes nothing.
    try kv.push(5, NDArray.ones(3, 2))
    catch { case error: KVException => println(s"${error.code}: ${error.getMessage}") }
    println("done")
  }

  private def shows(what: String, array: NDArray, wanted: Float): Unit = {
    println(s"$what: ${array.toArray.mkString(" ")}")
    require(array.toArray.forall(_ == wanted), s"$what: $wanted was wanted")
  }
}
