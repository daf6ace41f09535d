package highwire.verbs;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteOrder;
import java.nio.channels.ClosedByInterruptException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/**
 * A session with an engine: everything that this program has of its device.
 *
 * <p>Any number of threads may use it. One arena holds the mappings of the engine's own memory; each queue
 * and each {@link RdmaArena} has another. Memory of peers is mapped for as long as a queue pair needs it.
 *
 * <p>A context ends when its engine ends or does not answer in time, and does not come back: {@link #valid} is false from then on, calls throw
 * {@link EngineGoneException} with the reason, and {@link #reopen} makes another context. A context that is forgotten is closed when it is
 * collected, which {@link LeakDetector} reports.
 */
public final class Context implements AutoCloseable {
    /** How long a call waits for the engine's answer unless another time is given. */
    public static final Duration DEFAULT_TIMEOUT = Duration.ofSeconds(5);

    /** How long finding or starting an engine may take: that may unpack its program, on a machine whose cores are busy. */
    private static final Duration START_TIMEOUT = Duration.ofSeconds(60);
    /** Engines that end as soon as they have been found are not believed for ever. */
    private static final int ATTEMPTS = 5;

    final Frames frames;
    final Path directory;
    /** The engine's process. */
    final long enginePid;
    final Gid gid;
    final int maxInline;
    final int maxSge;
    final DoorbellBoard board;
    final EngineTables tables;
    final List<RdmaArena> arenas = new CopyOnWriteArrayList<>();
    private final long token;
    private final Path door;
    private final Duration timeout;
    /** Whether the program named the door, so that no other one will do. */
    private final boolean isNamed;
    private final int mtu;
    final Resources resources;
    private final LeakDetector.Tracker tracker;
    int objects;
    final Meter meter = new Meter();
    private volatile boolean isClosed;

    private Context(Path door, Duration timeout, boolean isNamed, Frames frames, long[] welcome) throws IOException {
        this.door = door;
        this.timeout = timeout;
        this.isNamed = isNamed;
        this.frames = frames;
        this.directory = door.toAbsolutePath().getParent();
        if (welcome[0] != Layout.DOOR_VERSION) {
            throw new VersionException(
                    "the engine serves version " + welcome[0] + ", this library wants " + Layout.DOOR_VERSION);
        }
        this.token = welcome[1];
        this.enginePid = welcome[2];
        this.gid = new Gid(welcome[3], welcome[4]);
        this.mtu = (int) welcome[8];
        this.maxSge = (int) welcome[10];
        this.maxInline = (int) welcome[11];
        this.resources = new Resources(frames, new PeerMappings(directory), new Ringer(directory));
        boolean isMade = false;
        try {
            Arena arena = resources.open();
            EngineWaker waker = EngineWaker.open(directory, new InetSocketAddress(gid.address(), (int) welcome[7]));
            resources.add(waker);
            this.board = new DoorbellBoard(mapSegment(welcome[5], welcome[6], arena), waker);
            this.tables = new EngineTables(Mapped.mapReadOnly(directory.resolve("engine"), arena));
            this.tracker = LeakDetector.track(this, "context", resources::closeAll);
            isMade = true;
        } finally {
            if (!isMade) {
                resources.closeAll();
            }
        }
    }

    /**
     * Connects to the engine that {@link Engines#findOrStart} finds or starts.
     *
     * @return a context
     * @throws NoEngineException there is none, or there are several and none was named
     * @throws VerbsException it does not serve this library
     */
    public static Context open() throws VerbsException {
        return recorded(false, () -> openAny(DEFAULT_TIMEOUT));
    }

    /** An engine that was found may end before this program is connected, because no other one uses it. Then the next one is asked. */
    private static Context openAny(Duration timeout) throws VerbsException {
        for (int attempt = 1;; attempt++) {
            Path door = Engines.findOrStart(START_TIMEOUT);
            try {
                return open(door, timeout, false);
            } catch (NoEngineException | EngineGoneException e) {
                if (attempt == ATTEMPTS || !Engines.startsOne()) {
                    throw e;
                }
            }
        }
    }

    /**
     * Connects to the engine behind a door.
     *
     * @param door the socket's path
     * @param timeout how long to wait for each answer
     * @return a context
     * @throws VerbsException it is not there, or does not serve this library
     */
    public static Context open(Path door, Duration timeout) throws VerbsException {
        return recorded(false, () -> open(door, timeout, true));
    }

    private interface Opening {
        Context open() throws VerbsException;
    }

    private static Context recorded(boolean isReopened, Opening opening) throws VerbsException {
        FlightEvents.ContextOpen event = new FlightEvents.ContextOpen();
        event.begin();
        Context made = opening.open();
        event.door = made.door.toString();
        event.enginePid = made.enginePid;
        event.isReopened = isReopened;
        event.commit();
        return made;
    }

    private static Context open(Path door, Duration timeout, boolean isNamed) throws VerbsException {
        if (ByteOrder.nativeOrder() != ByteOrder.LITTLE_ENDIAN) {
            throw new NoEngineException("the mapped layout is little-endian, and this machine is not");
        }
        Frames frames;
        try {
            frames = Frames.connect(door, timeout);
        } catch (ClosedByInterruptException e) {
            throw new CallInterruptedException("the thread was interrupted before the engine answered");
        } catch (IOException e) {
            throw new NoEngineException("no engine listens at " + door + " (" + e.getMessage() + "): start `highwire serve`");
        }
        boolean isMade = false;
        try {
            long[] welcome = frames.ask(Frames.HELLO, Layout.DOOR_MAGIC, Layout.DOOR_VERSION);
            Context made = new Context(door, timeout, isNamed, frames, welcome);
            isMade = true;
            FlightEvents.watch(made);
            return made;
        } catch (VerbsException e) {
            throw e;
        } catch (IOException e) {
            throw cannotMap("what the engine offers", e);
        } finally {
            if (!isMade) {
                frames.close();
            }
        }
    }

    /** The exception for memory of the engine's that this program cannot map. */
    static VerbsException cannotMap(String what, IOException e) {
        return e instanceof ClosedByInterruptException
                ? new CallInterruptedException("the thread was interrupted before " + what + " was mapped")
                : new VerbsException(what + " cannot be mapped: " + e.getMessage(), e);
    }

    /**
     * Connects once more, in the way in which this context was opened: to the engine behind its door, which may be another one by now, or to the one that {@link Engines#findOrStart}
     * finds or starts. Objects of this context stay objects of this context, and are closed as ever.
     *
     * @return another context, with the same time-out
     * @throws VerbsException no engine is there now, or it does not answer
     */
    public Context reopen() throws VerbsException {
        return recorded(true, () -> isNamed ? open(door, timeout, true) : openAny(timeout));
    }

    /** {@return the socket by which this context has reached its engine} */
    public Path door() {
        return door;
    }

    /** {@return why the engine serves this context no longer, as the exceptions say it; null as long as it does, as far as is known} */
    public String failure() {
        return frames.ended();
    }

    final void checkOpen() {
        if (isClosed) {
            throw new IllegalStateException("the context is closed");
        }
    }

    /** {@return the device's address} */
    public InetAddress address() {
        return gid.address();
    }

    /** {@return the largest path MTU of the device, in bytes} */
    public int mtu() {
        return mtu;
    }

    /** {@return what this context has done so far; any thread may ask} */
    public ContextMetrics metrics() {
        return meter.read();
    }

    /** Whether it was closed or its engine has ended, as far as is known. */
    boolean isOver() {
        return isClosed || failure() != null;
    }

    /** {@return whether the engine still is there} */
    public boolean valid() {
        return frames.isAlive();
    }

    /**
     * Makes a protection domain.
     *
     * @return the domain
     * @throws VerbsException why not
     */
    public ProtectionDomain protectionDomain() throws VerbsException {
        checkOpen();
        return new ProtectionDomain(this, frames.ask(Frames.CREATE_PD));
    }

    /**
     * Makes memory that can be registered.
     *
     * @param bytes how much, at least
     * @return an arena to allocate from
     * @throws VerbsException why not
     */
    public RdmaArena arena(long bytes) throws VerbsException {
        checkOpen();
        return RdmaArena.create(this, bytes);
    }

    /**
     * Makes a completion queue that is polled.
     *
     * @param capacity completions that it holds, at least
     * @return the queue
     * @throws VerbsException why not
     */
    public CompletionQueue completionQueue(int capacity) throws VerbsException {
        checkOpen();
        return CompletionQueue.create(this, capacity, null);
    }

    /**
     * Makes a completion queue that can be waited for as well.
     *
     * @param capacity completions that it holds, at least
     * @param channel where it reports
     * @return the queue
     * @throws VerbsException why not
     */
    public CompletionQueue completionQueue(int capacity, CompletionChannel channel) throws VerbsException {
        checkOpen();
        channel.checkOpen();
        return CompletionQueue.create(this, capacity, channel);
    }

    /**
     * Makes a channel over which completion queues report.
     *
     * @return the channel
     * @throws VerbsException why not
     */
    public CompletionChannel completionChannel() throws VerbsException {
        checkOpen();
        try {
            checkServed();
            Frames events = Frames.connect(door, timeout);
            resources.add(events);
            boolean isMade = false;
            try {
                long[] number = events.ask(Frames.EVENTS, Layout.DOOR_MAGIC, Layout.DOOR_VERSION, token);
                CompletionChannel made = new CompletionChannel(this, events, number[0]);
                isMade = true;
                return made;
            } finally {
                if (!isMade) {
                    resources.close(events);
                }
            }
        } catch (VerbsException e) {
            throw e;
        } catch (ClosedByInterruptException e) {
            throw new CallInterruptedException("the thread was interrupted before the engine answered");
        } catch (IOException e) {
            throw new EngineGoneException("the engine has ended: nobody listens at " + door + " (" + e.getMessage() + ")");
        }
    }

    /**
     * Wakes the thread that waits on a completion channel of another program of this machine. It finds no
     * completion there, and looks at the memory on which the two have agreed.
     *
     * @param bell as {@link CompletionChannel#bell} or {@link Bell#number} returned at a context of the same engine
     * @return false if nobody listens there any more
     */
    public boolean ring(long bell) {
        checkOpen();
        return resources.ringer.ring(bell);
    }

    /**
     * Makes a bell for a thread that sleeps in a selector of its own.
     *
     * @return the bell
     * @throws VerbsException why not
     */
    public Bell bell() throws VerbsException {
        checkOpen();
        return Bell.create(frames, resources, directory);
    }

    /** Maps a file of the engine's by its number. */
    MemorySegment mapSegment(long segment, long bytes, Arena into) throws IOException {
        MemorySegment memory = Mapped.map(directory.resolve("mem-" + segment), into);
        if (memory.byteSize() != bytes) {
            throw new IOException("mem-" + segment + " has " + memory.byteSize() + " bytes, not " + bytes);
        }
        return memory;
    }

    /** The region's arena, if the memory lies in an arena of this context. */
    RdmaArena arenaOf(MemorySegment memory) {
        for (RdmaArena candidate : arenas) {
            if (candidate.contains(memory)) {
                return candidate;
            }
        }
        throw new ForeignMemoryException(
                "the memory lies in no arena of this context: allocate it with Context.arena(…).allocate(…)");
    }

    /**
     * Ends the session.
     *
     * @throws InUseException some of its objects are still open; nothing has changed
     */
    @Override
    public void close() throws VerbsException {
        synchronized (this) {
            if (isClosed) {
                return;
            }
            if (objects > 0) {
                throw new InUseException(objects + " objects of the context are still open");
            }
            isClosed = true;
        }
        tracker.close();
        resources.closeAll();
    }

    void checkServed() throws EngineGoneException {
        String reason = frames.ended();
        if (reason != null) {
            throw new EngineGoneException("the context has ended: " + reason + "; open a new one");
        }
    }

    /** The doors that listen. */
    static List<Path> listening(Iterable<Path> doors) {
        List<Path> found = new ArrayList<>();
        for (Path candidate : doors) {
            try {
                Frames.connect(candidate, DEFAULT_TIMEOUT).close();
                found.add(candidate);
            } catch (IOException e) {
                // Left behind by an engine that was killed; the next engine removes it.
            }
        }
        return found;
    }
}
