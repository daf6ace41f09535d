package highwire.concurrency;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** jcstress, briefly: nothing forbidden is seen, and every planted defect is. `cargo xtask stress` runs it at length. */
@Timeout(value = 1, unit = TimeUnit.HOURS)
class ConcurrencyTest {
    private static final String[] PLANTED = {
        "highwire.verbs.PlantedDefects.DoorbellWithoutFence",
        "highwire.verbs.PlantedDefects.TailBeforeSlot",
        "highwire.memcached.RecordRead.PlantedUnverified",
        "highwire.zookeeper.MailAndSleep.PlantedWithoutFence",
    };
    /** The number of further searches for planted defects, five seconds each. */
    private static final int TURNS = 12;

    @Test
    void nothingForbiddenIsSeenAndWhatWasPlantedIs() throws Exception {
        assumeTrue(Runtime.getRuntime().availableProcessors() > 1, "skipped: two threads want two processors");
        String said = run("highwire", "2", "400");
        assertTrue(said.contains("Failed tests: No matches."), said);
        assertTrue(said.contains("Error tests: No matches."), said);
        for (String planted : PLANTED) {
            boolean isSeen = isInteresting(planted, said);
            // If other work keeps the two threads apart, an accident takes longer.
            for (int turn = 0; turn < TURNS && !isSeen; turn++) {
                isSeen = isInteresting(planted, run(planted.replace(".", "\\."), "5", "1000"));
            }
            assertTrue(isSeen, planted + " was not seen");
        }
    }

    private static boolean isInteresting(String test, String said) {
        int start = said.indexOf("Interesting tests:");
        return said.substring(start, said.indexOf("Failed tests:", start)).contains(test);
    }

    private static String run(String tests, String iterations, String millis) throws Exception {
        Path target = Path.of("target").toAbsolutePath();
        String classpath = target.resolve("classes") + ":" + Files.readString(target.resolve("classpath"));
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        ProcessBuilder builder = new ProcessBuilder(java, "-cp", classpath, "org.openjdk.jcstress.Main", "-t", tests, "-af", "NONE",
                "-f", "1", "-iters", iterations, "-time", millis, "-sc", "false", "-jvmArgs", "-server");
        Process process = builder.directory(target.toFile()).redirectErrorStream(true).start();
        String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, process.waitFor(), said);
        return said;
    }
}
