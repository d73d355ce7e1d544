package org.tensorkv;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;

import org.junit.jupiter.api.Test;

final class KVStoreTest {
  @Test
  void pullAfterPushSeesTheSum() {
    try (KVStore kv = KVStore.create("local")) {
      Shape shape = Shape.of(2, 3);
      kv.init(3, NDArray.ones(shape));
      NDArray out = NDArray.zeros(shape);

      kv.push(3, NDArray.ones(shape), NDArray.full(shape, 4));
      kv.pull(3, out);

      assertArrayEquals(new float[] {5, 5, 5, 5, 5, 5}, out.toArray());
    }
  }
}
