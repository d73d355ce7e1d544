package org.example;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.Map;
import java.util.Random;
import org.tensorkv.KVStore;
import org.tensorkv.NDArray;
import org.tensorkv.Optimizer;
import org.tensorkv.Shape;

/**
 * Finds the weights of a line from noisy points. Each worker has points of its own and pushes a
 * gradient; the store sums the gradients and takes a step.
 *
 * <pre>
 * java -jar target/regression.jar                                # in this process
 * tkv launch -n 2 -s 2 java -jar target/regression.jar dist_sync # two workers, two servers
 * </pre>
 */
public final class Regression {
  private static final float[] TRUTH = {2, -3, 0.5f};
  private static final int POINTS = 1000;
  private static final int STEPS = 300;

  private Regression() {}

  public static void main(String[] arguments) {
    String type = arguments.length > 0 ? arguments[0] : "local";
    Shape shape = Shape.of(TRUTH.length);
    try (KVStore kv = KVStore.create(type);
        Optimizer sgd = Optimizer.create("sgd", Map.of("learning_rate", 0.1 / kv.numWorkers()))) {
      kv.init("w", NDArray.zeros(shape)); // rank 0 makes the key, the others find it
      kv.setOptimizer(sgd);

      // Memory that Java and the store share: no copy on the way.
      FloatBuffer weights = floats(TRUTH.length);
      FloatBuffer gradient = floats(TRUTH.length);
      NDArray weightsArray = NDArray.wrap(weights, shape);
      NDArray gradientArray = NDArray.wrap(gradient, shape);

      Random random = new Random(kv.rank());
      for (int step = 0; step < STEPS; step++) {
        kv.pull("w", weightsArray);
        fill(gradient, weights, random);
        kv.push("w", gradientArray);
      }
      kv.pull("w", weightsArray);
      System.out.printf(
          "rank %d of %d: w = %.1f %.1f %.1f%n",
          kv.rank(), kv.numWorkers(), weights.get(0), weights.get(1), weights.get(2));
    }
  }

  /** The gradient of the mean square error over fresh points. */
  private static void fill(FloatBuffer gradient, FloatBuffer weights, Random random) {
    float[] sum = new float[TRUTH.length];
    float[] x = new float[TRUTH.length];
    for (int point = 0; point < POINTS; point++) {
      double error = 0.01 * random.nextGaussian();
      for (int i = 0; i < x.length; i++) {
        x[i] = (float) random.nextGaussian();
        error += (weights.get(i) - TRUTH[i]) * x[i];
      }
      for (int i = 0; i < x.length; i++) {
        sum[i] += (float) error * x[i] / POINTS;
      }
    }
    gradient.put(0, sum);
  }

  private static FloatBuffer floats(int count) {
    ByteBuffer bytes = ByteBuffer.allocateDirect(Float.BYTES * count);
    return bytes.order(ByteOrder.nativeOrder()).asFloatBuffer();
  }
}
