package highwire.engine;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Programs are unpacked whole, once, and nothing that was left half done stays. */
final class PackagedProgramTest {
    @TempDir
    Path folder;

    private final byte[] bytes = new byte[3_000_000];
    private Path root;
    private ProgramCache cache;
    private PackagedProgram program;

    @BeforeEach
    void pack() throws IOException {
        new Random(7).nextBytes(bytes);
        Path source = Files.write(folder.resolve("source"), bytes);
        root = folder.resolve("cache");
        cache = new ProgramCache(root);
        program = new PackagedProgram(source.toUri().toURL());
    }

    private List<String> files() throws IOException {
        try (Stream<Path> files = Files.walk(root)) {
            return files.filter(Files::isRegularFile).map(path -> path.getFileName().toString()).toList();
        }
    }

    @Test
    void programsThatUnpackTogetherGetOneWholeFile() throws Exception {
        try (ExecutorService threads = Executors.newFixedThreadPool(8)) {
            List<Callable<Path>> tasks = new ArrayList<>();
            for (int i = 0; i < 16; i++) {
                tasks.add(() -> {
                    Path unpacked = program.unpack(cache);
                    // Whoever has the path may execute it, whatever the others do.
                    assertArrayEquals(bytes, Files.readAllBytes(unpacked));
                    assertTrue(Files.isExecutable(unpacked));
                    return unpacked;
                });
            }
            Path first = program.unpack(cache);
            for (Future<Path> unpacked : threads.invokeAll(tasks)) {
                assertEquals(first, unpacked.get());
            }
        }
        assertEquals(List.of("highwire"), files());
    }

    @Test
    void aFileThatIsNotWholeIsReplaced() throws Exception {
        Path unpacked = program.unpack(cache);
        Object before = Files.getAttribute(unpacked, "unix:ino");
        assertEquals(before, Files.getAttribute(program.unpack(cache), "unix:ino"), "a whole one stays");
        for (byte[] damaged : List.of(new byte[0], new byte[bytes.length])) {
            Files.write(unpacked, damaged);
            assertArrayEquals(bytes, Files.readAllBytes(program.unpack(cache)));
        }
        Files.setPosixFilePermissions(unpacked, PosixFilePermissions.fromString("r--r--r--"));
        assertTrue(Files.isExecutable(program.unpack(cache)));
        assertEquals(List.of("highwire"), files());
    }

    @Test
    void whatWasLeftGoesWhenItIsOldAndNotBefore() throws Exception {
        Path own = program.unpack(cache).getParent();
        Path old = Files.write(own.resolve("part-old.tmp"), new byte[9]);
        Path young = Files.write(own.resolve("part-young.tmp"), new byte[9]);
        Path unused = Files.createDirectory(own.resolveSibling("0123"));
        Files.write(unused.resolve("highwire"), new byte[9]);
        Path used = Files.createDirectory(own.resolveSibling("4567"));
        Files.write(used.resolve("highwire"), new byte[9]);
        Files.setLastModifiedTime(old, FileTime.from(Instant.now().minus(Duration.ofHours(2))));
        Files.setLastModifiedTime(unused, FileTime.from(Instant.now().minus(Duration.ofDays(40))));
        Files.setLastModifiedTime(own, FileTime.from(Instant.now().minus(Duration.ofDays(40))));
        program.unpack(cache);
        assertFalse(Files.exists(old), "its writer has gone");
        assertTrue(Files.exists(young), "its writer may be at work");
        assertFalse(Files.exists(unused), "nobody uses that version");
        assertTrue(Files.exists(used));
        assertTrue(Files.exists(own.resolve("highwire")));
    }

    @Test
    void aFolderThatOthersCanChangeIsNotUsed() throws Exception {
        Files.createDirectory(root);
        Files.setPosixFilePermissions(root, PosixFilePermissions.fromString("rwxrwxrwx"));
        assertTrue(assertThrows(ProgramCache.UnusableException.class, () -> program.unpack(cache)).getMessage().contains("only its owner"));
        Files.delete(root);
        Path elsewhere = Files.createDirectory(folder.resolve("elsewhere"));
        Files.createSymbolicLink(root, elsewhere);
        assertThrows(ProgramCache.UnusableException.class, () -> program.unpack(cache));
        Files.delete(root);
        Files.write(root, new byte[1]);
        assertThrows(ProgramCache.UnusableException.class, () -> program.unpack(cache));
    }

    @Test
    void aPlatformWithoutProgramIsSaid() {
        assertEquals("linux-x86_64", PackagedProgram.platform("Linux", "amd64"));
        assertEquals("linux-aarch64", PackagedProgram.platform("Linux", "arm64"));
        assertEquals("mac-os-x-aarch64", PackagedProgram.platform("Mac OS X", "aarch64"));
        String said = assertThrows(IOException.class, () -> PackagedProgram.of("linux-riscv64")).getMessage();
        assertTrue(said.contains("no program for linux-riscv64") && said.contains("highwire serve"), said);
    }
}
