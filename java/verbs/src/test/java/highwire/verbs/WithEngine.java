package highwire.verbs;

import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;

/** Tests of one class that share an engine. */
abstract class WithEngine {
    static Engine engine;

    @BeforeAll
    static void start() {
        engine = Engine.start();
    }

    @AfterAll
    static void stop() throws Exception {
        if (engine != null) {
            engine.close();
            engine = null;
        }
    }
}
