package highwire.verbs;

import java.lang.foreign.MemorySegment;

/** A protection domain: keys and queue pairs of different domains have nothing to do with each other. */
public final class ProtectionDomain extends VerbsObject {
    final long handle;
    final int number;

    ProtectionDomain(Context context, long[] made) {
        super(context, "protection domain");
        this.handle = made[0];
        this.number = (int) made[1];
        begin();
    }

    /**
     * Registers memory. Keys refer to it by the addresses that it has in this program.
     *
     * @param memory memory of an {@link RdmaArena} of this context, of any length
     * @param access bits of {@link Access}
     * @return the region
     * @throws ForeignMemoryException it lies elsewhere
     * @throws VerbsException the engine refuses
     */
    public MemoryRegion register(MemorySegment memory, int access) throws VerbsException {
        checkOpen();
        RdmaArena arena = context.arenaOf(memory);
        arena.checkOpen();
        long offset = memory.address() - arena.segment().address();
        long[] made = context.frames.ask(
                Frames.REGISTER, handle, arena.handle, offset, memory.byteSize(), memory.address(), access);
        return new MemoryRegion(this, arena, memory, offset, access, made);
    }

    /**
     * Makes a shared receive queue.
     *
     * @param maxWr receives that it holds
     * @param maxSge pieces of one receive
     * @return the queue
     * @throws VerbsException why not
     */
    public SharedReceiveQueue sharedReceiveQueue(int maxWr, int maxSge) throws VerbsException {
        checkOpen();
        return SharedReceiveQueue.create(this, maxWr, maxSge);
    }

    /**
     * Makes a queue pair in RESET.
     *
     * @param config what it is made with
     * @return the queue pair
     * @throws VerbsException why not
     */
    public QueuePair queuePair(QueuePairConfig config) throws VerbsException {
        checkOpen();
        return QueuePair.create(this, config);
    }

    @Override
    void destroy() throws VerbsException {
        context.frames.askUninterrupted(Frames.DESTROY_PD, handle);
    }
}
