package highwire.hdfs.suite;

import highwire.hdfs.Sessions;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.junit.platform.launcher.LauncherSession;
import org.junit.platform.launcher.LauncherSessionListener;

/**
 * An engine, and Highwire's property, for as long as a class of Hadoop's own test suite runs, which knows of
 * neither.
 */
public final class SuiteEngine implements LauncherSessionListener {
    private static final String CALLS = "highwire.suite.calls";

    private Process engine;
    private Path folder;

    /** Made by JUnit, by name. */
    public SuiteEngine() {}

    @Override
    public void launcherSessionOpened(LauncherSession session) {
        if (System.getProperty(CALLS) == null) {
            // Maven's own JVM, which only looks for tests.
            return;
        }
        try {
            folder = Files.createTempDirectory(Path.of("/dev/shm"), "highwire-suite-");
            ProcessBuilder builder = new ProcessBuilder(System.getProperty("highwire.program", "highwire"), "serve").redirectError(ProcessBuilder.Redirect.INHERIT);
            builder.environment().put("HIGHWIRE_SHM_DIR", folder.toString());
            builder.environment().remove("HIGHWIRE_ADDR");
            engine = builder.start();
            String line = engine.inputReader().readLine();
            if (line == null) {
                throw new IOException(builder.command() + " has ended");
            }
            System.setProperty("highwire.door", line.substring(line.lastIndexOf(' ') + 1));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        Configuration.addDefaultResource("highwire-suite.xml");
    }

    @Override
    public void launcherSessionClosed(LauncherSession session) {
        if (engine == null) {
            return;
        }
        try {
            // Passing tests prove nothing if their calls took another way.
            Path calls = Files.createDirectories(Path.of(System.getProperty(CALLS)));
            Files.writeString(calls.resolve(ProcessHandle.current().pid() + ".calls"), Sessions.allCalls() + "\n");
            engine.destroy();
            engine.onExit().completeOnTimeout(engine, 60, TimeUnit.SECONDS).join().destroyForcibly();
            try (Stream<Path> left = Files.walk(folder)) {
                left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
