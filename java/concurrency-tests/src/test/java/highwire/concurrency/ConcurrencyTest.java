package highwire.concurrency;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;

/** jcstress, briefly: nothing forbidden is seen, and every planted defect is. `cargo xtask stress` runs it at length. */
class ConcurrencyTest {
    private static final String[] PLANTED = {
        "highwire.verbs.PlantedDefects.DoorbellWithoutFence",
        "highwire.verbs.PlantedDefects.TailBeforeSlot",
        "highwire.memcached.RecordRead.PlantedUnverified",
    };

    @Test
    void nothingForbiddenIsSeenAndWhatWasPlantedIs() throws Exception {
        assumeTrue(Runtime.getRuntime().availableProcessors() > 1, "skipped: two threads want two processors");
        String said = run("-f", "1", "-iters", "2", "-time", "400", "-sc", "false", "-jvmArgs", "-server");
        assertTrue(said.contains("Failed tests: No matches."), said);
        assertTrue(said.contains("Error tests: No matches."), said);
        int start = said.indexOf("Interesting tests:");
        String interesting = said.substring(start, said.indexOf("Failed tests:", start));
        for (String planted : PLANTED) {
            assertTrue(interesting.contains(planted), planted + " was not seen:\n" + said);
        }
    }

    private static String run(String... options) throws Exception {
        Path target = Path.of("target").toAbsolutePath();
        String classpath = target.resolve("classes") + ":" + Files.readString(target.resolve("classpath"));
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        ProcessBuilder builder = new ProcessBuilder(java, "-cp", classpath, "org.openjdk.jcstress.Main", "-t", "highwire", "-af", "NONE");
        builder.command().addAll(List.of(options));
        Process process = builder.directory(target.toFile()).redirectErrorStream(true).start();
        String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, process.waitFor(), said);
        return said;
    }
}
