package highwire.engine;

import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Starts {@code highwire serve} in the background, in a session of its own, so that it outlives the JVM that was first. It ends by itself when
 * no program has been connected for a while.
 *
 * <p>The caller holds a {@link StartLock}, and has looked for an engine behind it.
 */
public final class EngineStarter {
    /** The property that says which engine to start: {@code packaged} (as without it), {@code external} for none, or the path of a program. */
    public static final String ENGINE_PROPERTY = "highwire.engine";
    /** The property that says for how many seconds an engine without programs goes on; ten unless set. */
    public static final String IDLE_PROPERTY = "highwire.engine.idle";

    private static final String EXTERNAL = "external";
    private static final String PACKAGED = "packaged";
    private static final int IDLE_SECONDS = 10;
    /** What an engine says when programs may come. */
    private static final String SERVES = " serves at ";
    /** Linux refuses to execute a file that a child of another thread, between fork and exec, still has open for writing. */
    private static final int BUSY_ATTEMPTS = 100;
    private static final long BUSY_MILLIS = 20;

    private EngineStarter() {}

    /** {@return whether this program is to use only engines that others have started} */
    public static boolean isExternal() {
        return EXTERNAL.equals(System.getProperty(ENGINE_PROPERTY));
    }

    /**
     * Starts an engine and waits until it serves.
     *
     * @param registry the directory in which engines of this user find each other
     * @param patienceNanos how long it may take
     * @return the door of the engine
     * @throws IOException why there is none, in the engine's own words if it has said any
     */
    public static Path start(Path registry, long patienceNanos) throws IOException {
        String named = System.getProperty(ENGINE_PROPERTY, PACKAGED);
        int idle = idleSeconds();
        if (named.contains("/")) {
            return serve(Path.of(named), registry, idle, patienceNanos);
        }
        if (!named.equals(PACKAGED)) {
            throw new IOException("-D" + ENGINE_PROPERTY + "=" + named + " is neither `" + PACKAGED + "` nor `" + EXTERNAL + "` nor the path of a program");
        }
        PackagedProgram program = PackagedProgram.ofThisPlatform();
        List<String> failures = new ArrayList<>();
        for (ProgramCache cache : ProgramCache.candidates()) {
            try {
                return serve(program.unpack(cache), registry, idle, patienceNanos);
            } catch (CannotExecuteException | ProgramCache.UnusableException e) {
                failures.add(e.getMessage());
            }
        }
        throw new IOException(String.join("; ", failures) + ": name a folder where programs may be executed by -D" + ProgramCache.PROPERTY);
    }

    private static int idleSeconds() throws IOException {
        String named = System.getProperty(IDLE_PROPERTY);
        if (named == null) {
            return IDLE_SECONDS;
        }
        try {
            int seconds = Integer.parseInt(named.strip());
            if (seconds > 0) {
                return seconds;
            }
        } catch (NumberFormatException e) {
            // As for a number that is too small.
        }
        throw new IOException("-D" + IDLE_PROPERTY + "=" + named + " is no number of seconds from 1 on");
    }

    private static Path serve(Path program, Path registry, int idle, long patienceNanos) throws IOException {
        ProcessBuilder builder = new ProcessBuilder(program.toString(), "serve", "--detach", "--idle", Integer.toString(idle));
        // The engine stays in its folder for as long as it lives, and the user may want to remove this one.
        builder.directory(Path.of("/").toFile());
        builder.environment().put("HIGHWIRE_SHM_DIR", registry.toAbsolutePath().toString());
        // What was loaded into this JVM is not meant for the engine.
        builder.environment().remove("LD_PRELOAD");
        builder.redirectErrorStream(true);
        Process process = execute(builder, program);
        process.getOutputStream().close();
        String said = words(process, program, patienceNanos);
        for (String line : said.lines().toList()) {
            int at = line.indexOf(SERVES);
            if (at > 0) {
                return Path.of(line.substring(at + SERVES.length()).strip());
            }
        }
        throw new IOException(program + " serve ended at once: " + (said.isBlank() ? "it said nothing" : said.strip()));
    }

    private static Process execute(ProcessBuilder builder, Path program) throws IOException {
        for (int attempt = 1;; attempt++) {
            try {
                return builder.start();
            } catch (IOException e) {
                if (attempt == BUSY_ATTEMPTS || !has(e, 26)) {
                    throw new CannotExecuteException(program, e);
                }
            }
            try {
                Thread.sleep(BUSY_MILLIS);
            } catch (InterruptedException e) {
                throw interrupted();
            }
        }
    }

    /** Whether a process could not be started for this reason of the system. */
    private static boolean has(IOException e, int errno) {
        return String.valueOf(e.getMessage()).matches("(?s).*error[=:] ?" + errno + "\\b.*");
    }

    /** All that the engine says until it serves or ends. A pipe's read hears neither time-outs nor interrupts, so another thread reads. */
    private static String words(Process process, Path program, long patienceNanos) throws IOException {
        CompletableFuture<String> said = new CompletableFuture<>();
        Thread.ofPlatform().daemon().name("highwire-engine-start").start(() -> {
            try (InputStream output = process.getInputStream()) {
                said.complete(new String(output.readAllBytes(), StandardCharsets.UTF_8));
            } catch (IOException e) {
                said.completeExceptionally(e);
            }
        });
        try {
            return said.get(patienceNanos, TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            process.destroyForcibly();
            throw new IOException(program + " serve has not said for " + TimeUnit.NANOSECONDS.toSeconds(patienceNanos) + " s that it serves");
        } catch (ExecutionException e) {
            throw new IOException(program + " serve: " + e.getCause().getMessage());
        } catch (InterruptedException e) {
            throw interrupted();
        }
    }

    static InterruptedIOException interrupted() {
        Thread.currentThread().interrupt();
        return new InterruptedIOException("the thread was interrupted before the engine served");
    }

    /** A program that this system does not execute where it is. */
    private static final class CannotExecuteException extends IOException {
        private static final long serialVersionUID = 1;

        CannotExecuteException(Path program, IOException cause) {
            super(describe(program, cause), cause);
        }

        private static String describe(Path program, IOException cause) {
            String why = has(cause, 13) ? " (is its file system mounted noexec?)"
                    : has(cause, 2) ? " (does this system have glibc?)"
                    : "";
            return cause.getMessage() + why;
        }
    }
}
