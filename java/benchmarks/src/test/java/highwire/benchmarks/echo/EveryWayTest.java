package highwire.benchmarks.echo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import highwire.verbs.Engines;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.HdrHistogram.Histogram;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The comparison itself, briefly: every way works, and a wrong message is no round trip. */
@Timeout(120)
class EveryWayTest {
    private static final int COUNT = 100;
    private static final Path PROGRAM = Path.of(System.getProperty("highwire.program", "highwire"));
    private static Engine near;
    private static Engine far;

    @BeforeAll
    static void start() throws IOException {
        if (Files.isExecutable(PROGRAM)) {
            near = new Engine(PROGRAM);
            far = new Engine(PROGRAM);
        }
    }

    @AfterAll
    static void end() throws IOException {
        if (near != null) {
            near.close();
            far.close();
        }
    }

    private static void use(Engine engine) {
        System.setProperty(Engines.DOOR_PROPERTY, engine.door());
    }

    /** All but JUCX: UCX takes over signals of its JVM, and the comparison gives it others of its own. */
    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.MATCH_NONE, names = "JUCX.*", value = Way.class)
    void everyWayBringsMessagesThereAndBack(Way way) throws Exception {
        assumeTrue(near != null, "skipped: " + PROGRAM + " is not there: cargo build -p highwire");
        Echo echo = way.echo();
        assumeTrue(echo.obstacle() == null, "skipped: " + echo.obstacle());
        for (int bytes : new int[] {4, 16384}) {
            use(way.path == Way.Path.UDP ? far : near);
            try (Echo.Server server = echo.serve(bytes)) {
                use(near);
                try (Echo.Client client = echo.connect(server.introduction(), bytes)) {
                    server.meet(client.introduction());
                    Histogram times = new Histogram(3);
                    client.run(COUNT, times);
                    assertEquals(COUNT, times.getTotalCount());
                }
            }
        }
    }

    @Test
    void aMessageThatComesBackAsAnotherIsAnError() {
        Turns turns = new Turns() {
            @Override
            int exchange(int number) {
                return number == 3 ? 2 : number;
            }

            @Override
            public void close() {}
        };
        Histogram times = new Histogram(3);
        IOException wrong = assertThrows(IOException.class, () -> turns.run(COUNT, times));
        assertEquals("message 3 came back as 2", wrong.getMessage());
        assertEquals(2, times.getTotalCount());
    }

    private static final String TIMES = "[0-9.]+ / [0-9.]+ / [0-9.]+";

    /** The comparison's output for these ways, in a hurry. */
    private static String compare(String ways) throws Exception {
        assumeTrue(near != null, "skipped: " + PROGRAM + " is not there: cargo build -p highwire");
        Process process = Jvm.start(Map.of("highwire.program", PROGRAM.toString(), "highwire.rounds", "1", "highwire.millis", "20",
                "highwire.sizes", "4,1024", "highwire.ways", ways), Comparison.class);
        String text = new String(process.getInputStream().readAllBytes());
        assertEquals(0, process.waitFor(), text);
        return text;
    }

    @Test
    void theComparisonPrintsARowForEachWay() throws Exception {
        String text = compare("READ,NIO_TCP_BLOCKING");
        assertTrue(text.lines().anyMatch(line -> line.matches("\\| Highwire READ \\| shared memory \\| polling \\| " + TIMES + " \\| " + TIMES + " \\| – \\|")), text);
        assertTrue(text.lines().anyMatch(line -> line.matches("\\| NIO \\| TCP \\| blocking \\| " + TIMES + " \\| " + TIMES + " \\| 1.00 × \\|")), text);
    }

    @Test
    void memoryIsCollectedWhileItIsMeasured() throws Exception {
        Process process = Jvm.start(Map.of(Ends.MILLIS, "500", Ends.GARBAGE, "200"), Ends.class, "ask", Way.NIO_TCP_BLOCKING.name(), "8");
        String text = new String(process.getInputStream().readAllBytes());
        assertEquals(0, process.waitFor(), text);
        assertTrue(text.lines().anyMatch(line -> line.matches("echo: collections [1-9][0-9]*")), text);
    }
}
