package highwire.samples;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The samples print what the pages promise. */
@Timeout(120)
final class SamplesTest {
    private static Process engine;
    private static Path folder;

    private interface Main {
        void run() throws Exception;
    }

    @BeforeAll
    static void serve() throws IOException {
        Path program = Path.of(System.getProperty("highwire.program", "highwire"));
        assumeTrue(Files.isExecutable(program), "skipped: " + program + " is not there: cargo build -p highwire");
        folder = Files.createTempDirectory(Path.of("/dev/shm"), "highwire-samples-");
        ProcessBuilder builder = new ProcessBuilder(program.toString(), "serve").redirectError(ProcessBuilder.Redirect.INHERIT);
        builder.environment().put("HIGHWIRE_SHM_DIR", folder.toString());
        builder.environment().remove("HIGHWIRE_ADDR");
        engine = builder.start();
        String line = engine.inputReader().readLine();
        assertTrue(line != null && line.contains(" serves at "), "it said " + line);
        System.setProperty("highwire.door", line.substring(line.lastIndexOf(' ') + 1));
    }

    @AfterAll
    static void end() throws IOException {
        if (engine != null) {
            engine.destroy();
            engine.onExit().completeOnTimeout(engine, 60, TimeUnit.SECONDS).join().destroyForcibly();
            try (Stream<Path> left = Files.walk(folder)) {
                left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
            }
        }
    }

    private static String said(Main main) throws Exception {
        PrintStream out = System.out;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        System.setOut(new PrintStream(said, true));
        try {
            main.run();
        } finally {
            System.setOut(out);
        }
        return said.toString();
    }

    @Test
    void theFirstReadReads() throws Exception {
        assertEquals("SUCCESS: hello from memory that nobody sent\n", said(() -> FirstRead.main(new String[0])));
    }

    @Test
    void aProgramOfDisniReads() throws Exception {
        assertEquals("READ: hello to a program that was written for DiSNI\n", said(() -> DisniRead.main(new String[0])));
    }
}
