package org.tensorkv;

import java.io.IOException;
import java.io.InputStream;
import java.util.Properties;
import org.bytedeco.javacpp.Loader;

/** The native library: loaded once, from the jar of this platform. */
final class Library {
  private static final KVException FAILURE = load();

  private Library() {}

  /**
   * Returns where the library can be called.
   *
   * @throws KVException {@link Code#UNIMPLEMENTED}: there is none for this platform; {@link
   *     Code#FAILED_PRECONDITION}: it is of another version
   */
  static void require() {
    if (FAILURE != null) {
      throw new KVException(FAILURE.code(), FAILURE.getMessage(), FAILURE.getCause());
    }
  }

  private static KVException load() {
    String wanted = version();
    try {
      Loader.load(Native.class);
    } catch (UnsatisfiedLinkError error) {
      String message =
          "load: no native library for %s on the class path, org.tensorkv:tensorkv:%s with the"
              + " classifier of the platform was wanted";
      return new KVException(
          Code.UNIMPLEMENTED, message.formatted(Loader.getPlatform(), wanted), error);
    }
    String found = Memory.text(Native.tkv_version());
    if (!found.equals(wanted)) {
      String message = "load: the native library is version %s, %s was wanted";
      return new KVException(Code.FAILED_PRECONDITION, message.formatted(found, wanted));
    }
    Native.bind();
    return null;
  }

  private static String version() {
    Properties properties = new Properties();
    try (InputStream stream = Library.class.getResourceAsStream("tensorkv.properties")) {
      properties.load(stream);
    } catch (IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
    return properties.getProperty("version");
  }
}
