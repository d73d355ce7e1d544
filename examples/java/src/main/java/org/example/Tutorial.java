package org.example;

import java.util.Arrays;
import org.tensorkv.Context;
import org.tensorkv.Item;
import org.tensorkv.KVException;
import org.tensorkv.KVStore;
import org.tensorkv.Key;
import org.tensorkv.NDArray;
import org.tensorkv.Optimizer;
import org.tensorkv.Shape;

/** A walk through the store: {@code java -cp target/regression.jar org.example.Tutorial}. */
public final class Tutorial {
  private static final Shape SHAPE = Shape.of(2, 3);

  private Tutorial() {}

  public static void main(String[] arguments) {
    try (KVStore kv = KVStore.create()) {
      // A key has the shape and dtype of the value that it starts with. Keys are numbers or texts.
      NDArray a = NDArray.zeros(SHAPE);
      kv.init(3, NDArray.full(SHAPE, 2));
      kv.pull(3, a);
      shows("a key starts with its value", a, 2);

      // Several workers: the values of one push are summed.
      NDArray[] values = new NDArray[4];
      Arrays.setAll(values, i -> NDArray.ones(SHAPE).withContext(Context.cpu(i)));
      kv.push(3, values);
      kv.pull(3, a);
      shows("a push stores the sum of its values", a, 4);

      // An updater combines the sum with what is stored, by changing it in place.
      kv.setUpdater((key, sum, stored) -> stored.addInPlace(sum.mul(2)));
      kv.push(3, NDArray.ones(SHAPE));
      kv.pull(3, a);
      shows("stored + 2 * sum", a, 6);

      // What an updater throws reaches the pusher, and the key is as it was.
      kv.setUpdater(
          (key, sum, stored) -> {
            throw new IllegalStateException("no update of key " + key + " today");
          });
      try {
        kv.push(3, NDArray.ones(SHAPE));
      } catch (IllegalStateException error) {
        System.out.println("the updater says: " + error.getMessage());
      }

      // An optimizer is data: in a job it runs on the servers.
      kv.setOptimizer(Optimizer.builder("sgd").set("learning_rate", 0.5).build());
      kv.push(3, NDArray.ones(SHAPE));
      kv.pull(3, a);
      shows("one step of SGD", a, 5.5f);

      // Several keys in one call, each with its own values.
      kv.setUpdater(null);
      kv.init(new int[] {5, 7}, NDArray.zeros(SHAPE), NDArray.zeros(SHAPE));
      kv.push(Item.of(5, values), Item.of(7, values[0]).priority(1));
      shows("key 5", kv.pull(Key.of(5)), 4);
      shows("key 7", kv.pull(Key.of(7)), 1);

      // What is wrong is an error that names the key, and changes nothing.
      try {
        kv.push(5, NDArray.ones(Shape.of(3, 2)));
      } catch (KVException error) {
        System.out.println(error.code() + ": " + error.getMessage());
      }
    }
    System.out.println("done");
  }

  private static void shows(String what, NDArray array, float wanted) {
    float[] found = array.toArray();
    System.out.println(what + ": " + Arrays.toString(found));
    for (float element : found) {
      if (element != wanted) {
        throw new AssertionError(what + ": " + element + ", " + wanted + " was wanted");
      }
    }
  }
}
