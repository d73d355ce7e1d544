package org.tensorkv.scala

import _root_.scala.collection.mutable.ArrayBuffer

/** The steps of MXNet's tutorial of the KVStore in Scala, with contexts of this machine, and what each of them shows. */
class TutorialSuite extends munit.FunSuite {

  test("the tutorial's statements give the tutorial's results") {
    val lines = ArrayBuffer.empty[String]
    def println(line: String): Unit = lines += line

    val kv = KVStore.create("local") // create a local kv store.
    val shape = Shape(2, 3)
    kv.init(3, NDArray.ones(shape) * 2)
    val a = NDArray.zeros(shape)
    kv.pull(3, out = a)
    assertEquals(a.toArray.toSeq, Seq(2.0f, 2.0f, 2.0f, 2.0f, 2.0f, 2.0f))

    kv.push(3, NDArray.ones(shape) * 8)
    kv.pull(3, out = a) // pull out the value
    assertEquals(a.toArray.toSeq, Seq(8.0f, 8.0f, 8.0f, 8.0f, 8.0f, 8.0f))

    val cpus = Array(Context.cpu(0), Context.cpu(1), Context.cpu(2), Context.cpu(3))
    val b = Array(NDArray.ones(shape, cpus(0)), NDArray.ones(shape, cpus(1)), NDArray.ones(shape, cpus(2)), NDArray.ones(shape, cpus(3)))
    kv.push(3, b)
    kv.pull(3, out = a)
    assertEquals(a.toArray.toSeq, Seq(4.0f, 4.0f, 4.0f, 4.0f, 4.0f, 4.0f))

    val updater = new MXKVStoreUpdater {
      override def update(key: Int, input: NDArray, stored: NDArray): Unit = {
        println(s"update on key $key")
        stored += input * 2
      }
      override def dispose(): Unit = {}
    }
    kv.setUpdater(updater)
    kv.pull(3, a)
    assertEquals(a.toArray.toSeq, Seq(4.0f, 4.0f, 4.0f, 4.0f, 4.0f, 4.0f))
    kv.push(3, NDArray.ones(shape))
    assertEquals(lines.toSeq, Seq("update on key 3"))
    kv.pull(3, a)
    assertEquals(a.toArray.toSeq, Seq(6.0f, 6.0f, 6.0f, 6.0f, 6.0f, 6.0f))

    kv.pull(3, outs = b)
    assertEquals(b(1).toArray.toSeq, Seq(6.0f, 6.0f, 6.0f, 6.0f, 6.0f, 6.0f))

    lines.clear()
    val keys = Array(5, 7, 9)
    kv.init(keys, Array.fill(keys.length)(NDArray.ones(shape)))
    kv.push(keys, Array.fill(keys.length)(NDArray.ones(shape)))
    assertEquals(lines.toSeq, Seq("update on key 5", "update on key 7", "update on key 9"))
    val c = Array.fill(keys.length)(NDArray.zeros(shape))
    kv.pull(keys, outs = c)
    assertEquals(c(1).toArray.toSeq, Seq(3.0f, 3.0f, 3.0f, 3.0f, 3.0f, 3.0f))
    kv.dispose()
  }
}
