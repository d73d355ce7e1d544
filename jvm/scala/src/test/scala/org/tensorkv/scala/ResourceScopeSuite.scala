package org.tensorkv.scala

class ResourceScopeSuite extends munit.FunSuite {
  private val shape = Shape(2, 3)

  test("an array may be made beside a disposed one of the same shape") {
    val made = ResourceScope.using() {
      NDArray.ones(2, 3).dispose()
      NDArray.zeros(2, 3)
    }
    assert(!made.isDisposed)
  }

  test("an array of no scope that is returned stays, though one with equal elements was made inside") {
    val w = NDArray.ones(2, 3)
    ResourceScope.using() {
      ResourceScope.using() {
        NDArray.ones(2, 3)
        w
      }
    }
    assert(!w.isDisposed)
  }

  test("the array that is returned stays, and one that has become equal to it is disposed") {
    var x: NDArray = null
    val y = ResourceScope.using() {
      x = NDArray.ones(2, 3)
      val y = NDArray.zeros(2, 3)
      y += 1
      y
    }
    assert(!y.isDisposed && x.isDisposed)
  }

  test("all of many equal arrays are disposed") {
    val made = new Array[NDArray](50)
    ResourceScope.using() { for (i <- 0 until 50) made(i) = NDArray.zeros(shape) }
    assertEquals(made.count(!_.isDisposed), 0)
  }

  test("many arrays of one shape are made without reading each other") {
    val own = NDArray.zeros(shape)
    val scope = new ResourceScope
    for (_ <- 0 until 20000) scope.add(NDArray.zeros(shape))
    scope.add(own)
    scope.remove(own)
    assert(!scope.contains(own))
    scope.close()
    assert(!own.isDisposed)
  }

  test("arrays of every dtype may be made twice") {
    ResourceScope.using() {
      for (dtype <- DType.values; _ <- 0 until 2) NDArray.zeros(Shape(2), dtype = dtype)
    }
  }

  test("the newest resource is disposed first, also of a scope that got one twice") {
    var disposed = List.empty[Int]
    class Numbered(number: Int) extends NativeResource {
      override def dispose(): Unit = disposed ::= number
      override def isDisposed: Boolean = disposed.contains(number)
    }
    val first = new Numbered(1)
    val scope = new ResourceScope
    scope.add(first)
    scope.add(new Numbered(2))
    scope.add(first)
    scope.close()
    assertEquals(disposed, List(1, 2))
  }

  test("a loop that disposes its gradients, and an updater that disposes its own arrays, run in a scope") {
    ResourceScope.using() {
      val kv = KVStore.create("local")
      kv.init(3, NDArray.zeros(shape))
      kv.setUpdater(new MXKVStoreUpdater {
        override def update(key: Int, input: NDArray, stored: NDArray): Unit = {
          val twice = input * 2
          stored += twice
          twice.dispose()
        }
        override def dispose(): Unit = {}
      })
      for (i <- 1 to 20) {
        val grad = NDArray.ones(shape) * i
        kv.push(3, grad)
        grad.dispose()
      }
      assertEquals(kv.pull(3).toArray.head, 420f)
    }
  }
}
