package org.tensorkv;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** A process of its own, which runs a class of the tests. */
final class Program {
  private static final long LONGEST_S = 120;

  private Program() {}

  /** How a process has ended, and what it has said. */
  record Result(int status, String output) {}

  /** The command that runs `main` of a class, with what the tests run with. */
  static List<String> java(Class<?> main, String... arguments) {
    String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
    String cache = "-Dorg.bytedeco.javacpp.cachedir=" + System.getProperty("org.bytedeco.javacpp.cachedir");
    List<String> command =
        new ArrayList<>(List.of(java, "-Xmx256m", "-Xcheck:jni", "-XX:-CreateCoredumpOnCrash", cache));
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), main.getName()));
    command.addAll(List.of(arguments));
    return command;
  }

  /** The command `tkv` of the tree's build. */
  static String tkv() {
    return Path.of(System.getProperty("tkv.build"), "cli", "tkv").toString();
  }

  static Result run(List<String> command) throws IOException, InterruptedException {
    return run(command, Map.of());
  }

  static Result run(List<String> command, Map<String, String> environment)
      throws IOException, InterruptedException {
    Path log = Files.createTempFile("program", ".log");
    ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
    builder.redirectOutput(log.toFile()).directory(log.getParent().toFile());
    builder.environment().putAll(environment);
    Process process = builder.start();
    boolean hasEnded = process.waitFor(LONGEST_S, TimeUnit.SECONDS);
    if (!hasEnded) {
      process.destroyForcibly().waitFor();
    }
    String output = Files.readString(log);
    Files.delete(log);
    assertTrue(hasEnded, "not ended in time: " + command + "\n" + output);
    return new Result(process.exitValue(), output);
  }
}
