package org.tensorkv.scala

import java.nio.file.Files

import _root_.scala.collection.mutable.ArrayBuffer

import org.tensorkv.Code

class KVStoreSuite extends munit.FunSuite {
  private val shape = Shape(2, 3)
  private val store = FunFixture[KVStore](_ => KVStore.create(), _.dispose())

  private def full(value: Float): NDArray = NDArray.full(shape, value)
  private def pulled(kv: KVStore, key: Key): Float = {
    val out = NDArray.zeros(shape)
    kv.pull(key, out)
    assertEquals(kv.pull(key), out)
    out.toArray.distinct match {
      case Array(one) => one
      case several => fail(s"several values: ${several.toSeq}")
    }
  }

  /** Says what it is called with, and adds the sum. */
  private class Adder extends MXKVStoreUpdater {
    val keys: ArrayBuffer[Any] = ArrayBuffer.empty
    var disposed = 0
    override def update(key: Int, input: NDArray, stored: NDArray): Unit = {
      keys += key
      stored += input
    }
    override def dispose(): Unit = disposed += 1
  }

  store.test("text keys") { kv =>
    kv.init("a", full(1))
    kv.init(Array("b", "c"), Array(full(2), full(3)))
    kv.push("a", full(4), priority = 2)
    kv.push("a", Array(full(4), full(5)))
    kv.push(Array("b", "c"), Array(full(6), full(7)), 1)
    assertEquals(Seq[Key]("a", "b", "c").map(pulled(kv, _)), Seq(9f, 6f, 7f))
    val outs = Array(full(0), full(0))
    kv.pull("a", outs = outs)
    assertEquals(outs(1), full(9))
    kv.pull(Array("b", "c"), outs = outs)
    assertEquals(outs.map(_.toArray.head).toSeq, Seq(6f, 7f))
  }

  store.test("push and pull in one, and broadcast") { kv =>
    val outs = Array(full(0))
    kv.broadcast(1, full(5), outs)
    assertEquals(outs(0), full(5))
    kv.pushPull(1, Array(full(1), full(2)), outs)
    assertEquals(outs(0), full(3))
  }

  store.test("an updater of text keys sees their index, as in MXNet") { kv =>
    val updater = new Adder
    kv.init(Array("x", "y"), Array(full(0), full(0)))
    kv.setUpdater(updater)
    kv.push(Array("y", "x"), Array(full(1), full(1)))
    assertEquals(updater.keys.toSeq, Seq[Any](1, 0))
  }

  store.test("or their names, where it asks for them") { kv =>
    val names = ArrayBuffer.empty[String]
    kv.init("x", full(1))
    kv.setUpdater(new Adder {
      override def update(key: String, index: Int, input: NDArray, stored: NDArray): Unit = names += key
    })
    kv.push("x", full(1))
    assertEquals(names.toSeq, Seq("x"))
  }

  store.test("an exception of an updater reaches the caller, and nothing has changed") { kv =>
    kv.init(Array(1, 2), Array(full(1), full(1)))
    kv.setUpdater(new Adder {
      override def update(key: Int, input: NDArray, stored: NDArray): Unit = {
        stored += input
        if (key == 2) throw new IllegalStateException("enough")
      }
    })
    intercept[IllegalStateException](kv.push(Array(1, 2), Array(full(1), full(1))))
    assertEquals(pulled(kv, 1), 1f)
  }

  test("an updater is disposed once, when another takes its place or the store is disposed") {
    val kv = KVStore.create()
    val updaters = Seq.fill(3)(new Adder)
    kv.setUpdater(updaters(0))
    kv.setUpdater(updaters(0))
    kv.setUpdater(updaters(1))
    assertEquals(updaters.map(_.disposed), Seq(1, 0, 0))
    kv.setOptimizer(Optimizer("sgd"))
    kv.setUpdater(updaters(2))
    kv.dispose()
    kv.dispose()
    assertEquals(updaters.map(_.disposed), Seq(1, 1, 1))
    assert(kv.isDisposed)
  }

  store.test("optimizers and their states") { kv =>
    val file = Files.createTempDirectory("states").resolve("states").toString
    kv.init(3, full(1))
    val momentum = Optimizer("momentum", "learning_rate" -> 1.0, "momentum" -> 1.0)
    kv.setOptimizer(momentum)
    kv.push(3, full(1))
    kv.saveOptimizerStates(file)
    kv.loadOptimizerStates(file)
    momentum("learning_rate") = 0
    assertEquals(momentum("learning_rate"), 0.0)
    kv.push(3, full(0))
    assertEquals(pulled(kv, 3), -1f)
    kv.setUpdater("program twice\ndouble = mul sum 2\nw = add value double\nvalue <- w\n")
    kv.push(3, full(1))
    assertEquals(pulled(kv, 3), 1f)
  }

  store.test("what a store is") { kv =>
    assertEquals((kv.`type`, kv.rank, kv.numWorkers, kv.isDistributed), ("local", 0, 1, false))
    assertEquals(kv.numDeadNode(7), 0)
    kv.setBarrierBeforeExit(true)
    kv.barrier()
    val folder = Files.createTempDirectory("snapshots").toString
    kv.init(1, full(1))
    assert(kv.save(folder).startsWith(folder))
    kv.push(1, full(2))
    kv.load(folder)
    assertEquals(pulled(kv, 1), 1f)
    assertEquals(kv.asJava.keys.size, 1)
  }

  test("a store of several processes takes a program, and refuses a function with the reason") {
    val kv = KVStore.create("dist_sync", Map("bootstrap" -> "self"))
    assert(kv.isDistributed)
    kv.init("w", full(1))
    val error = intercept[KVException](kv.setUpdater(new Adder))
    assert(error.getMessage.contains("a function cannot run on the servers"), error.getMessage)
    kv.setUpdater("program add\nw = add value sum\nvalue <- w\n")
    kv.push("w", full(2))
    assertEquals(pulled(kv, "w"), 3f)
    kv.sendCommandToServers(4, "type=2bit, threshold=0.5")
    kv.push("w", full(2))
    assertEquals(pulled(kv, "w"), 3.5f)
    kv.dispose()
  }

  store.test("bad calls are errors with a code") { kv =>
    kv.init(1, full(1))
    val wrong = NDArray.ones(3, 2)
    for (
      (code, call) <- Seq[(Code, () => Any)](
        Code.INVALID_ARGUMENT -> (() => kv.push(1, wrong)),
        Code.INVALID_ARGUMENT -> (() => kv.push(1, null: NDArray)),
        Code.INVALID_ARGUMENT -> (() => kv.push(1, null: Array[NDArray])),
        Code.INVALID_ARGUMENT -> (() => kv.push(null: Key, full(1))),
        Code.INVALID_ARGUMENT -> (() => kv.push(null: String, full(1))),
        Code.INVALID_ARGUMENT -> (() => kv.push(Array(1, 2), Array(full(1)))),
        Code.INVALID_ARGUMENT -> (() => kv.init("text", full(1))),
        Code.INVALID_ARGUMENT -> (() => kv.setUpdater(null: MXKVStoreUpdater)),
        Code.INVALID_ARGUMENT -> (() => kv.setOptimizer(null)),
        Code.INVALID_ARGUMENT -> (() => kv.sendCommandToServers(9, "")),
        Code.INVALID_ARGUMENT -> (() => kv.sendCommandToServers(4, "2bit")),
        Code.INVALID_ARGUMENT -> (() => kv.setGradientCompression("type" -> "2bit", "threshold" -> "x")),
        Code.UNIMPLEMENTED -> (() => kv.sendCommandToServers(3, "")),
        Code.ALREADY_EXISTS -> (() => kv.init(1, full(1))),
        Code.NOT_FOUND -> (() => kv.pull(2, full(1))),
        Code.NOT_FOUND -> (() => kv.pull(2)),
        Code.INVALID_ARGUMENT -> (() => kv.numDeadNode(0)),
        Code.INVALID_ARGUMENT -> (() => kv.pull("text", null: NDArray)),
        Code.INVALID_ARGUMENT -> (() => KVStore.create("locl")),
        Code.FAILED_PRECONDITION -> (() => KVStore.runServer()),
        Code.UNIMPLEMENTED -> (() => NDArray.ones(shape, Context.gpu(0)))
      )
    ) assertEquals(intercept[KVException](call()).code, code)
    assertEquals(pulled(kv, 1), 1f)
  }
}
