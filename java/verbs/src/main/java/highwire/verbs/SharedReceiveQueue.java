package highwire.verbs;

import java.io.IOException;

/** Receives that several queue pairs share. One thread posts at a time. */
public final class SharedReceiveQueue extends VerbsObject {
    final long handle;
    private final ProducerRing ring;
    private final int bell;

    private SharedReceiveQueue(ProtectionDomain domain, long[] made, ProducerRing ring) {
        super(domain.context, "shared receive queue", domain);
        this.handle = made[0];
        this.bell = (int) made[3];
        this.ring = ring;
        begin();
    }

    static SharedReceiveQueue create(ProtectionDomain domain, int maxWr, int maxSge) throws VerbsException {
        Context context = domain.context;
        long[] made = context.frames.ask(Frames.CREATE_SRQ, domain.handle, maxWr, maxSge);
        boolean isMade = false;
        try {
            ProducerRing ring = ProducerRing.map(context, Layout.RING_KIND_RECEIVE, made[1], made[2]);
            SharedReceiveQueue queue = new SharedReceiveQueue(domain, made, ring);
            isMade = true;
            return queue;
        } catch (IOException e) {
            throw Context.cannotMap("the shared receive queue", e);
        } finally {
            if (!isMade) {
                context.frames.askUninterrupted(Frames.DESTROY_SRQ, made[0]);
            }
        }
    }

    /**
     * A call that posts a receive.
     *
     * @param request what it receives into
     * @return the call
     */
    public PostRecv postRecv(ReceiveRequest request) {
        checkOpen();
        return new PostRecv(this, ring, null, bell, request);
    }

    @Override
    void destroy() throws VerbsException {
        context.frames.askUninterrupted(Frames.DESTROY_SRQ, handle);
    }

    @Override
    void release() {
        ring.close();
    }
}
