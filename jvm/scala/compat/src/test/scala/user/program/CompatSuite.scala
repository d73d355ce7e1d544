package user.program

import org.apache.mxnet._
import org.apache.mxnet.optimizer.{Adam, SGD}

/** A program that knows MXNet's names alone. */
class CompatSuite extends munit.FunSuite {
  private val shape = Shape(2, 3)

  test("a program of MXNet's names runs") {
    ResourceScope.using() {
      val kv: KVStore = KVStore.create("local")
      kv.init("3", NDArray.ones(shape, Context.cpu(), DType.Float32))
      kv.setUpdater(new MXKVStoreUpdater {
        override def update(key: Int, recv: NDArray, local: NDArray): Unit = local += recv * 2
        override def dispose(): Unit = {}
      })
      kv.push("3", Array(NDArray.ones(shape), NDArray.ones(shape)))
      val out = NDArray.empty(shape)
      kv.pull("3", out = out)
      assertEquals(out.toArray.toSeq, Seq.fill(6)(5f))
      intercept[MXNetError](kv.pull("4", out))
    }
  }

  test("optimizers have MXNet's names and defaults") {
    val kv = KVStore.create("local")
    kv.init(Array("a", "b"), Array(NDArray.ones(shape), NDArray.ones(shape)))
    kv.setOptimizer(new SGD(learningRate = 0.5f, wd = 0f))
    kv.push("a", NDArray.ones(shape))
    val out = NDArray.empty(shape)
    kv.pull("a", out)
    assertEquals(out.toArray.head, 0.5f)
    assertEquals(SGD()("learning_rate"), 0.01f.toDouble)
    assertEquals(SGD(momentum = 0.5f)("momentum"), 0.5)
    assertEquals(Adam()("beta2"), 0.999f.toDouble)
    kv.dispose()
  }
}
