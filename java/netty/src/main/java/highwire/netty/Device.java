package highwire.netty;

import highwire.verbs.CompletionChannel;
import highwire.verbs.CompletionQueue;
import highwire.verbs.Context;
import highwire.verbs.EngineGoneException;
import highwire.verbs.Engines;
import highwire.verbs.ProtectionDomain;
import highwire.verbs.VerbsException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * The engine behind a door, for all channels of this JVM that use it. It stays open until the engine ends.
 *
 * <p>Calls to an engine can wait for its answer, so a thread of its own makes them and no event loop does. A second thread waits for completions that other
 * engines cause, and for the engine's end.
 */
final class Device {
    /** After a failure all that ask within this time get the same answer. */
    private static final long PAUSE_NANOS = 1_000_000_000L;
    private static final Path ANY = Path.of("");
    private static final Map<Path, Attempt> ATTEMPTS = new ConcurrentHashMap<>();
    private static final Executor CONTROL = control();

    private record Attempt(CompletableFuture<Device> result, long at) {
        boolean isOver() {
            if (!result.isDone()) {
                return false;
            }
            return result.isCompletedExceptionally() ? System.nanoTime() - at > PAUSE_NANOS : result.join().failure() != null;
        }
    }

    private final Context context;
    private final ProtectionDomain domain;
    private final CompletionChannel channel;
    private final Map<CompletionQueue, Link> links = new ConcurrentHashMap<>();
    private volatile String failure;

    private Device(Path door) throws VerbsException {
        Context opened = door.equals(ANY) ? Context.open() : Context.open(door, Context.DEFAULT_TIMEOUT);
        CompletionChannel made = null;
        try {
            domain = opened.protectionDomain();
            made = opened.completionChannel();
        } finally {
            if (made == null) {
                close(opened);
            }
        }
        context = opened;
        channel = made;
        Thread watcher = new Thread(this::watch, "highwire-netty-watch");
        watcher.setDaemon(true);
        watcher.start();
    }

    private static Executor control() {
        ThreadPoolExecutor executor = new ThreadPoolExecutor(1, 1, 10, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), task -> {
            Thread thread = new Thread(task, "highwire-netty-control");
            thread.setDaemon(true);
            return thread;
        });
        executor.allowCoreThreadTimeOut(true);
        return executor;
    }

    /**
     * The device behind a door.
     *
     * @param door null for the one that {@link Engines#find} finds
     * @return it, once it is open
     */
    static CompletableFuture<Device> at(Path door) {
        return ATTEMPTS.compute(door == null ? ANY : door, (path, last) -> last != null && !last.isOver() ? last : new Attempt(open(path), System.nanoTime()))
                .result;
    }

    private static CompletableFuture<Device> open(Path door) {
        CompletableFuture<Device> opened = new CompletableFuture<>();
        CONTROL.execute(() -> {
            try {
                opened.complete(new Device(door));
            } catch (Throwable e) {
                opened.completeExceptionally(e);
            }
        });
        return opened;
    }

    /** Runs calls to the engine, one after the other. */
    static void control(Runnable call) {
        CONTROL.execute(call);
    }

    Context context() {
        return context;
    }

    ProtectionDomain domain() {
        return domain;
    }

    CompletionChannel channel() {
        return channel;
    }

    /** Why the engine serves no longer; null as long as it does. */
    String failure() {
        return failure;
    }

    void add(CompletionQueue queue, Link link) {
        links.put(queue, link);
        if (failure != null) {
            link.wakeOwner();
        }
    }

    void remove(CompletionQueue queue) {
        links.remove(queue);
    }

    private void watch() {
        try {
            while (true) {
                CompletionQueue queue = channel.await(Duration.ofDays(1));
                Link link = queue == null ? null : links.get(queue);
                if (link != null) {
                    link.wakeOwner();
                }
            }
        } catch (EngineGoneException | InterruptedException | IllegalStateException e) {
            failure = e.getMessage() == null ? e.toString() : e.getMessage();
            links.values().forEach(Link::wakeOwner);
        }
    }

    /** Closes the objects that exist, in order. A failure must not keep the rest open. */
    static void close(AutoCloseable... parts) {
        for (AutoCloseable part : parts) {
            try {
                if (part != null) {
                    part.close();
                }
            } catch (Exception e) {
                // An object of an engine that is silent or gone, which ends all of them.
            }
        }
    }
}
