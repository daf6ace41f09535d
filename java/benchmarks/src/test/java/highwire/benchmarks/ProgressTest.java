package highwire.benchmarks;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class ProgressTest {
    @Test
    void theTimeLeftIsWhatTheStepsSoFarTookForEachThatIsLeft() {
        Progress progress = new Progress(10);
        assertEquals("1 of 10: a", progress.line("a", 0));
        progress.begin(4);
        assertEquals("5 of 10: b, about 60 s left", progress.line("b", 40));
        assertEquals("5 of 10: b, about 10 min left", progress.line("b", 400));
        progress.begin(9);
        assertEquals("10 of 10: c, about 2 min left", progress.line("c", 1080));
    }
}
