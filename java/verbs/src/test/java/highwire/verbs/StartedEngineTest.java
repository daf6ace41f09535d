package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import highwire.engine.EngineStarter;
import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Programs that open a context where no engine serves, each in a JVM of its own. */
final class StartedEngineTest {
    private static final Path PROGRAM = Path.of(System.getProperty("highwire.program", "highwire")).toAbsolutePath();

    private Path registry;
    /** The counters of an engine that was killed stay until its parent has noticed, which may be a namespace's first process that never looks. */
    private String killed = "";
    private final List<Jvm> started = new ArrayList<>();

    /** A JVM that runs {@link ColdStart}. */
    private record Jvm(Process process, BufferedReader output) implements AutoCloseable {
        /** What it says of its engine: status, value, process, door. */
        String[] said() throws IOException {
            String line = output.readLine();
            assertNotNull(line, "it ended instead");
            return line.split(" ");
        }

        void again() throws IOException {
            process.getOutputStream().write('\n');
            process.getOutputStream().flush();
        }

        @Override
        public void close() throws IOException {
            process.getOutputStream().close();
            process.onExit().completeOnTimeout(process, Engine.PATIENCE.toSeconds(), TimeUnit.SECONDS).join();
            process.destroyForcibly();
        }
    }

    @BeforeEach
    void makeRegistry() throws IOException {
        assumeTrue(Files.isExecutable(PROGRAM), "skipped: " + PROGRAM + " is not there: cargo build -p highwire");
        registry = Files.createTempDirectory(Path.of("/dev/shm"), "highwire-cold-");
    }

    @AfterEach
    void nothingIsLeft() throws IOException {
        if (registry == null) {
            return;
        }
        for (Jvm jvm : started) {
            jvm.close();
        }
        try {
            Engine.until("the end of the engine that nobody uses", () -> Set.of("lock", "net").containsAll(files()));
        } catch (AssertionError e) {
            throw new AssertionError("left behind: " + files(), e);
        }
        try (Stream<Path> left = Files.walk(registry)) {
            left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }

    /** Names in the registry; rosters are kept by design. */
    private Set<String> files() {
        Set<String> names = new TreeSet<>();
        for (String name : registry.toFile().list()) {
            if (!name.startsWith("roster-") && !name.equals(killed)) {
                names.add(name);
            }
        }
        return names;
    }

    private Jvm start(String... options) throws IOException {
        return start(ProcessBuilder.Redirect.INHERIT, options);
    }

    private Jvm start(ProcessBuilder.Redirect errors, String... options) throws IOException {
        List<String> words = new ArrayList<>(List.of(Path.of(System.getProperty("java.home"), "bin/java").toString(), "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Dhighwire.engine.idle=1"));
        words.addAll(List.of(options));
        // The tests' own class path is the module path of the verbs.
        String modules = System.getProperty("jdk.module.path", "");
        words.addAll(List.of("-cp", modules + ":" + System.getProperty("java.class.path") + ":" + Path.of("target/classes") + ":" + Path.of("target/test-classes"), ColdStart.class.getName()));
        ProcessBuilder builder = new ProcessBuilder(words).redirectError(errors);
        builder.environment().put("HIGHWIRE_SHM_DIR", registry.toString());
        List.of("HIGHWIRE_ADDR", "HIGHWIRE_DOOR").forEach(builder.environment()::remove);
        Process process = builder.start();
        Jvm jvm = new Jvm(process, process.inputReader());
        started.add(jvm);
        return jvm;
    }

    private Jvm startNamed() throws IOException {
        return start("-Dhighwire.engine=" + PROGRAM);
    }

    private static void check(String[] said) {
        assertEquals("SUCCESS 42", said[0] + " " + said[1]);
    }

    private static void kill(String pid) {
        ProcessHandle.of(Long.parseLong(pid)).ifPresent(ProcessHandle::destroyForcibly);
    }

    private static boolean isAlive(String pid) {
        try {
            String stat = Files.readString(Path.of("/proc", pid, "stat"));
            // One that has ended, and whose parent has not noticed, has no more files.
            return stat.charAt(stat.lastIndexOf(')') + 2) != 'Z';
        } catch (IOException e) {
            return false;
        }
    }

    @Test
    void programsThatStartTogetherShareOneEngineWhicheverIsKilled() throws Exception {
        List<Jvm> together = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            together.add(startNamed());
        }
        Set<String> engines = new TreeSet<>();
        String engine = null;
        for (Jvm jvm : together) {
            String[] said = jvm.said();
            check(said);
            engines.add(engine = said[2]);
        }
        assertEquals(1, engines.size(), "one engine serves all: " + engines);
        // One of the first three is the one that started it.
        for (Jvm jvm : together.subList(0, 3)) {
            jvm.process().destroyForcibly().waitFor();
        }
        Jvm late = startNamed();
        String[] said = late.said();
        check(said);
        assertEquals(engine, said[2], "it outlives the program that started it");
        late.close();
        together.getLast().close();
        String last = engine;
        Engine.until("the end of the engine", () -> !isAlive(last));
    }

    @Test
    void aContextOpensAgainAtAnotherEngineAfterItsOwnWasKilled() throws Exception {
        Jvm one = startNamed();
        Jvm other = startNamed();
        String[] first = one.said();
        check(first);
        check(other.said());
        killed = "stats-" + Path.of(first[3]).getParent().getFileName();
        kill(first[2]);
        Engine.until("the end of the engine", () -> !isAlive(first[2]));
        one.again();
        other.again();
        String[] second = one.said();
        assertEquals("again", second[0]);
        assertNotEquals(first[2], second[2]);
        assertEquals("again", other.said()[0]);
    }

    @Test
    void aProgramThatWasKilledWhileItStartedTheEngineKeepsNobodyFromStartingOne() throws Exception {
        // It holds the lock until its engine serves, and this one never does.
        Path script = registry.resolve("never");
        Files.writeString(script, "#!/bin/sh\ntouch " + registry.resolve("begun") + "\nexec sleep 1000\n");
        assertTrue(script.toFile().setExecutable(true));
        Jvm stuck = start("-Dhighwire.engine=" + script);
        Engine.until("its attempt", () -> Files.exists(registry.resolve("begun")));
        Jvm next = startNamed();
        List<ProcessHandle> children = stuck.process().children().toList();
        stuck.process().destroyForcibly().waitFor();
        children.forEach(ProcessHandle::destroyForcibly);
        check(next.said());
        Files.delete(script);
        Files.delete(registry.resolve("begun"));
    }

    @Test
    void aProgramThatRunsItsOwnEngineStartsNoneAndIsTold() throws Exception {
        assertTrue(failure("-Dhighwire.engine=external").contains("NoEngineException: no engine serves below " + registry));
        assertTrue(files().isEmpty(), "nothing was started: " + files());
    }

    @Test
    void whyAnEngineDoesNotStartIsSaidInItsOwnWords() throws Exception {
        Path script = registry.resolve("refuses");
        Files.writeString(script, "#!/bin/sh\necho 'error: no room for an engine' >&2\nexit 1\n");
        assertTrue(script.toFile().setExecutable(true));
        String said = failure("-Dhighwire.engine=" + script);
        assertTrue(said.contains("NoEngineException") && said.contains("no room for an engine"), said);
        assertTrue(script.toFile().setExecutable(false));
        said = failure("-Dhighwire.engine=" + script);
        assertTrue(said.contains("NoEngineException") && said.contains("Permission denied") && said.contains("noexec"), said);
        Files.delete(script);
        said = failure("-Dhighwire.engine=" + script);
        assertTrue(said.contains("NoEngineException") && said.contains("No such file"), said);
        said = failure("-Dhighwire.engine=extrenal");
        assertTrue(said.contains("extrenal is neither"), said);
        said = failure("-Dhighwire.engine=" + PROGRAM, "-Dhighwire.engine.idle=0");
        assertTrue(said.contains("is no number of seconds"), said);
    }

    @Test
    void theProgramThatIsPackagedServesAndIsUnpackedOnce() throws Exception {
        assumeTrue(EngineStarter.class.getResource("/META-INF/highwire/linux-x86_64/highwire") != null,
                "skipped: highwire-engine was built without a program");
        Path cache = Files.createTempDirectory("highwire-cache-");
        List<Jvm> together = List.of(start("-Dhighwire.engine.cache=" + cache), start("-Dhighwire.engine.cache=" + cache));
        Set<String> engines = new TreeSet<>();
        for (Jvm jvm : together) {
            String[] said = jvm.said();
            check(said);
            engines.add(said[2]);
        }
        assertEquals(1, engines.size());
        try (Stream<Path> files = Files.walk(cache)) {
            List<String> names = files.filter(Files::isRegularFile).map(path -> path.getFileName().toString()).toList();
            assertEquals(List.of("highwire"), names);
        }
        try (Stream<Path> left = Files.walk(cache)) {
            left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
        assertFalse(Files.exists(cache));
    }

    /** What a program says that ends with an exception. */
    private String failure(String... options) throws Exception {
        Path said = Files.createTempFile("highwire-cold-", ".txt");
        try {
            Jvm jvm = start(ProcessBuilder.Redirect.to(said.toFile()), options);
            assertNotEquals(0, jvm.process().waitFor());
            return Files.readString(said);
        } finally {
            Files.delete(said);
        }
    }
}
