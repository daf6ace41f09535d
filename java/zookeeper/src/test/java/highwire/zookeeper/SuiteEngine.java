package highwire.zookeeper;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.junit.platform.launcher.LauncherSession;
import org.junit.platform.launcher.LauncherSessionListener;

/** An engine for as long as classes of ZooKeeper's own test suite run, which know of none. */
public final class SuiteEngine implements LauncherSessionListener {
    private Engine engine;

    /** Made by JUnit, by name. */
    public SuiteEngine() {}

    @Override
    public void launcherSessionOpened(LauncherSession session) {
        if (Boolean.getBoolean("highwire.suite")) {
            try {
                engine = Engine.start();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }

    @Override
    public void launcherSessionClosed(LauncherSession session) {
        if (engine != null) {
            try {
                engine.close();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }
}
