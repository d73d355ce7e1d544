package org.tensorkv;

/** Uses the library and says what it throws, twice. */
final class VersionProgram {
  private VersionProgram() {}

  public static void main(String[] arguments) {
    for (int i = 0; i < 2; i++) {
      try {
        NDArray.zeros(Shape.of(1));
        System.out.println("loaded");
      } catch (KVException error) {
        System.out.println(error);
      }
    }
  }
}
