package highwire.zookeeper;

import highwire.verbs.Completion;
import highwire.verbs.CompletionChannel;
import highwire.verbs.CompletionQueue;
import highwire.verbs.EngineGoneException;
import highwire.verbs.IdleStrategy;
import highwire.verbs.VerbsException;
import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * All links of a server: one queue into which their receives complete, and one thread that takes the
 * messages. It lives as long as its engine.
 */
public final class Hub {
    private static final Duration LOOK = Duration.ofSeconds(1);

    /** The owner of a link. All calls but {@link #broken} come from the hub's thread. */
    public interface Owner {
        /**
         * A message has come.
         *
         * @param wrId of a receive
         * @param length of its message
         */
        void received(long wrId, int length);

        /**
         * Takes a message from its link's mailbox, unless it wants none now.
         *
         * @return whether it took one
         */
        boolean takeMail();

        /** Does work that it was asked for, or continues it. */
        void proceed();

        /**
         * The link has failed.
         *
         * @param reason why no message will come any more
         */
        void broken(String reason);
    }

    private final Device device;
    private final CompletionChannel channel;
    private final CompletionQueue received;
    /** Null if no link may have a mailbox. */
    private final Sleeper sleeper;
    private final int connections;
    private final int mailboxes;
    private final AtomicInteger lastId = new AtomicInteger();
    private final Map<Integer, Owner> owners = new ConcurrentHashMap<>();
    /** Owners of links with mailboxes, which the hub polls. */
    private final Set<Owner> withMailbox = ConcurrentHashMap.newKeySet();
    private final Queue<Owner> called = new ConcurrentLinkedQueue<>();
    private final Set<Owner> waiting = ConcurrentHashMap.newKeySet();
    private final IdleStrategy idle;
    private final Thread thread;
    private volatile boolean isAsleep;
    private volatile boolean isClosing;
    private volatile boolean isOver;

    /**
     * Starts one.
     *
     * @throws VerbsException there is no engine
     */
    public Hub() throws VerbsException {
        this(IdleStrategy.adaptive(Settings.spin()));
    }

    /**
     * Starts one whose thread waits in its own way.
     *
     * @param idle how long it looks before it sleeps
     * @throws VerbsException there is no engine
     */
    public Hub(IdleStrategy idle) throws VerbsException {
        this.idle = idle;
        device = Device.acquire();
        connections = Settings.connections();
        mailboxes = Settings.mailboxes();
        CompletionChannel events = null;
        CompletionQueue queue = null;
        Sleeper bed = null;
        try {
            events = device.context().completionChannel();
            // As many as can ever be posted, so that the queue cannot overflow.
            queue = device.context().completionQueue(connections * Settings.depth(), events);
            bed = mailboxes == 0 ? null : new Sleeper(device, events);
        } catch (VerbsException e) {
            Device.close(queue, events);
            device.release();
            throw e;
        }
        channel = events;
        received = queue;
        sleeper = bed;
        thread = Thread.ofPlatform().name("highwire-zookeeper").daemon().start(this::run);
    }

    /** {@return whether links can still be made} */
    public boolean isOpen() {
        return !isOver && !isClosing;
    }

    /**
     * Makes a link.
     *
     * @param owner the owner
     * @return the link, which receives already
     * @throws IOException the server has as many links as it takes, or the engine refuses
     */
    public synchronized Link link(Owner owner) throws IOException {
        if (!isOpen()) {
            throw new GreetingException("the server's engine has ended");
        }
        if (owners.size() >= connections) {
            throw new GreetingException("the server takes " + connections + " connections over queue pairs (" + Settings.CONNECTIONS + ")");
        }
        int id = lastId.incrementAndGet();
        Link link = new Link(device, channel, received, id, withMailbox.size() < mailboxes ? sleeper : null);
        owners.put(id, owner);
        return link;
    }

    /**
     * Looks at an owner's mailbox from now on.
     *
     * @param owner knows its peer now, and that they use mailboxes
     */
    public void lookForMail(Owner owner) {
        withMailbox.add(owner);
    }

    /**
     * Closes a link.
     *
     * @param owner the owner
     * @param link the link
     * @param engineWork where what may have to wait for the engine is done
     */
    public void unlink(Owner owner, Link link, Executor engineWork) {
        synchronized (this) {
            owners.values().remove(owner);
            waiting.remove(owner);
            withMailbox.remove(owner);
        }
        link.end();
        engineWork.execute(link::close);
    }

    /**
     * Calls an owner in the hub's thread soon.
     *
     * @param owner must be called by the hub's thread soon
     */
    public void call(Owner owner) {
        called.add(owner);
        if (isAsleep) {
            channel.wakeup();
        }
    }

    /**
     * Says whether an owner waits for its sends.
     *
     * @param owner waits for its link's sends to complete
     * @param isWaiting whether it does
     */
    public void waitForSends(Owner owner, boolean isWaiting) {
        if (!isWaiting) {
            waiting.remove(owner);
        } else if (waiting.add(owner)) {
            call(owner);
        }
    }

    private void run() {
        String reason = "the server ends";
        try {
            while (!isClosing) {
                if (turn()) {
                    idle.found();
                } else if (!idle.goOn()) {
                    sleep();
                    idle.begin();
                }
            }
        } catch (EngineGoneException | IllegalStateException e) {
            reason = e.getMessage();
        } catch (InterruptedException e) {
            reason = "the thread was interrupted";
        }
        synchronized (this) {
            isOver = true;
            for (Owner owner : owners.values()) {
                owner.broken(reason);
            }
            Device.close(sleeper, received, channel);
            device.release();
        }
    }

    private final Completion completion = new Completion();

    private boolean turn() {
        boolean hasWorked = false;
        while (received.poll(completion)) {
            hasWorked = true;
            dispatch();
        }
        for (Owner owner : withMailbox) {
            hasWorked |= owner.takeMail();
        }
        for (Owner next = called.poll(); next != null; next = called.poll()) {
            hasWorked = true;
            next.proceed();
        }
        if (!waiting.isEmpty()) {
            waiting.forEach(Owner::proceed);
        }
        return hasWorked;
    }

    private void dispatch() {
        Owner owner = owners.get(Link.idOf(completion));
        if (owner == null) {
            // A completion of a link that was closed.
            return;
        }
        if (completion.isSuccess()) {
            owner.received(completion.wrId(), completion.byteLen());
        } else {
            owner.broken("a receive ended with " + completion.status());
        }
    }

    private void sleep() throws EngineGoneException, InterruptedException {
        isAsleep = true;
        received.requestNotify(false);
        if (sleeper != null) {
            sleeper.lieDown();
        }
        if (!turn() && !isClosing) {
            channel.await(LOOK);
        }
        if (sleeper != null) {
            sleeper.getUp();
        }
        isAsleep = false;
    }

    /** Ends all links. */
    public void close() {
        isClosing = true;
        channel.wakeup();
        try {
            if (Thread.currentThread() != thread) {
                thread.join();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
