import org.tensorkv.scala._

/** The statements of MXNet's tutorial of the KVStore in Scala, on four GPUs. */
object GpuTutorial {
  def main(arguments: Array[String]): Unit = {
    val kv = KVStore.create(arguments(0))
    val shape = Shape(2, 3)
    kv.init(3, NDArray.ones(shape) * 2)
    val a = NDArray.zeros(shape)
    val gpus = Array(Context.gpu(0), Context.gpu(1), Context.gpu(2), Context.gpu(3))
    val b = Array(NDArray.ones(shape, gpus(0)), NDArray.ones(shape, gpus(1)), NDArray.ones(shape, gpus(2)), NDArray.ones(shape, gpus(3)))
    kv.push(3, b)
    kv.pull(3, out = a)
    println(a.toArray.mkString(" "))

    val updater = new MXKVStoreUpdater {
      override def update(key: Int, input: NDArray, stored: NDArray): Unit = {
        println(s"update on key $key, on ${stored.context}")
        stored += input * 2
      }
      override def dispose(): Unit = {}
    }
    kv.setUpdater(updater)
    kv.push(3, NDArray.ones(shape, gpus(2)))
    kv.pull(3, outs = b)
    println(s"${b(1).context}: ${b(1).toArray.mkString(" ")}")

    val keys = Array(5, 7, 9)
    kv.init(keys, Array.fill(keys.length)(NDArray.ones(shape)))
    kv.push(keys, Array.fill(keys.length)(NDArray.ones(shape, gpus(3))))
    val c = Array.fill(keys.length)(NDArray.zeros(shape, gpus(0)))
    kv.pull(keys, outs = c)
    println(c(1).toArray.mkString(" "))
    kv.dispose()
  }
}
