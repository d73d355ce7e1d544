package org.tensorkv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Whole processes: how they end, jobs of several, and libraries that do not fit. */
final class ProcessTest {
  @ParameterizedTest
  @CsvSource({
    "return, local, 0",
    "exit, local, 3",
    "throw, local, 1",
    "return, dist_async, 0",
    "exit, dist_async, 3"
  })
  void aMachineEndsWithAStoreOpen(String how, String type, int status) throws Exception {
    Program.Result result = Program.run(Program.java(ExitProgram.class, how, type));
    assertEquals(status, result.status(), result.output());
    assertTrue(result.output().startsWith("ends"), result.output());
    assertFalse(result.output().contains("FAULT"), result.output());
    assertTrue(result.output().contains("closed\n"), result.output());
    assertFalse(result.output().contains("SIG"), result.output());
  }

  @Test
  void anUpdaterMayEndTheMachine() throws Exception {
    Program.Result result = Program.run(Program.java(ExitProgram.class, "update", "local"));
    assertEquals(4, result.status(), result.output());
    assertTrue(result.output().startsWith("ends"), result.output());
  }

  @Test
  void twoWorkersAndTwoServers() throws Exception {
    List<String> command = new ArrayList<>(List.of(Program.tkv(), "launch", "-n", "2", "-s", "2"));
    command.addAll(Program.java(WorkerProgram.class));
    Program.Result result = Program.run(command);
    assertEquals(0, result.status(), result.output());
    for (int rank = 0; rank < 2; rank++) {
      for (String line : List.of("sum 3.0", "row 2.0", "sgd 2.0", "later 1.0")) {
        String wanted = "rank " + rank + " of 2 " + line;
        assertTrue(result.output().contains(wanted), wanted + "\n" + result.output());
      }
      assertTrue(result.output().contains(rank + " refused set_updater"), result.output());
    }
    assertTrue(result.output().contains("done false, cancelled true\n"), result.output());
    String cancelled = "true true java.util.concurrent.CancellationException\n";
    assertTrue(result.output().contains(cancelled), result.output());
    assertTrue(result.output().contains("ticket CANCELLED\n"), result.output());
    assertTrue(result.output().contains("dead 00\n"), result.output());
    String lost = "lost org.tensorkv.KVException: CANCELLED: ";
    assertTrue(result.output().contains(lost), result.output());
  }

  private static List<String> withClassPath(List<String> command, String path) {
    List<String> changed = new ArrayList<>(command);
    changed.set(changed.indexOf("-cp") + 1, path);
    return changed;
  }

  @Test
  void aLibraryOfAnotherVersionIsRefused(@TempDir Path folder) throws Exception {
    Path properties = folder.resolve("org/tensorkv/tensorkv.properties");
    Files.createDirectories(properties.getParent());
    Files.writeString(properties, "version=9.9.9\n");
    String path = folder + File.pathSeparator + System.getProperty("java.class.path");
    Program.Result result =
        Program.run(withClassPath(Program.java(VersionProgram.class), path));
    String line =
        "org.tensorkv.KVException: FAILED_PRECONDITION: load: the native library is version "
            + KVStore.version()
            + ", 9.9.9 was wanted\n";
    assertEquals(line + line, result.output());
  }

  @Test
  void aMissingLibraryIsAnErrorThatSaysWhatToAdd(@TempDir Path folder) throws Exception {
    String all = System.getProperty("java.class.path");
    String path =
        Arrays.stream(all.split(File.pathSeparator))
            .filter(part -> !part.endsWith("native"))
            .collect(Collectors.joining(File.pathSeparator));
    List<String> command = withClassPath(Program.java(VersionProgram.class), path);
    command.replaceAll(
        word -> word.contains("cachedir") ? "-Dorg.bytedeco.javacpp.cachedir=" + folder : word);
    Program.Result result = Program.run(command);
    assertTrue(
        result.output().contains("UNIMPLEMENTED: load: no native library for linux-x86_64"),
        result.output());
  }
}
