package highwire.verbs;

import java.lang.foreign.MemorySegment;

/**
 * Requests that the posting thread carries out itself, between queue pairs of one engine.
 *
 * <p>It checks what a responder checks, on the tables that the engine publishes. Any objection to a request sends it through the engine, whose
 * verdict counts.
 */
final class DirectPath {
    /** Longer requests go through the engine, as those of its own do. */
    static final long BYTES_MAX = 4 << 20;

    private final Context context;
    private final Peer peer;
    private final Claim claim;

    DirectPath(Context context, MemorySegment sendRing, int qpn) {
        this.context = context;
        this.peer = new Peer(context, qpn);
        this.claim = new Claim(sendRing);
    }

    /** The queue pair has got another peer. */
    void connected(int peerQpn) {
        peer.connected(peerQpn);
    }

    /** As {@link Claim#close}. */
    void close() throws InUseException {
        claim.close();
    }

    /** The queue pair stays. */
    void reopen() {
        claim.reopen();
    }

    /** The queue pair has gone. */
    void release() {
        peer.release();
    }

    /**
     * Carries a request out; false if it was not begun, and the engine must have it.
     *
     * @throws IllegalStateException another thread has closed memory that this one was copying
     */
    boolean execute(PostSend.Request request) {
        if (request.total == 0 || request.total > BYTES_MAX || !request.mayBeDirect) {
            return false;
        }
        return switch (request.opcode) {
            case WRITE -> write(request);
            case READ -> read(request);
            case SEND, SEND_WITH_IMM, WRITE_WITH_IMM -> message(request);
            default -> atomic(request);
        };
    }

    private boolean write(PostSend.Request request) {
        try {
            if (!begin(request, Access.REMOTE_WRITE)) {
                return false;
            }
            copy(request);
            return true;
        } finally {
            claim.end();
        }
    }

    private boolean read(PostSend.Request request) {
        try {
            if (!begin(request, Access.REMOTE_READ)) {
                return false;
            }
            Peer.Target target = request.target;
            long from = target.at;
            for (int i = 0; i < request.lengths.length; i++) {
                MemoryRegion region = request.regions[i];
                Copies.copyAcquire(target.memory, from, region.base, region.start + request.offsets[i], request.lengths[i]);
                from += request.lengths[i];
            }
            return true;
        } finally {
            claim.end();
        }
    }

    private boolean atomic(PostSend.Request request) {
        try {
            Peer.Target target = request.target;
            if (request.total != 8 || (request.remoteAddress & 7) != 0 || !begin(request, Access.REMOTE_ATOMIC) || (target.at & 7) != 0) {
                return false;
            }
            // The place of the result is looked at before anything changes: an atomic is not to be executed twice.
            MemoryRegion region = request.regions[0];
            long into = region.start + request.offsets[0];
            region.base.get(Mapped.ANY_LONG, into);
            long was = request.opcode == Opcode.FETCH_ADD
                    ? (long) Mapped.LONG.getAndAdd(target.memory, target.at, request.compareAdd)
                    : (long) Mapped.LONG.compareAndExchange(target.memory, target.at, request.compareAdd, request.swap);
            region.base.set(Mapped.ANY_LONG, into, was);
            return true;
        } finally {
            claim.end();
        }
    }

    /**
     * A message uses the peer's oldest receive. The engine gets a receive of several pieces or one that is too short, one that it holds, or none.
     */
    private boolean message(PostSend.Request request) {
        PeerReceives receives = peer.isConnected() ? peer.receives() : null;
        if (receives == null || !claim.lookAt(receives)) {
            return false;
        }
        boolean isCopied = false;
        try {
            // The peer may have been read anew meanwhile: then the receive is not the one that was looked at.
            if (!beginMessage(request, receives) || receives != peer.receives() || !claim.take()) {
                return false;
            }
            try {
                copy(request);
                isCopied = true;
            } finally {
                endMessage(request, isCopied);
            }
        } finally {
            claim.end();
        }
        return isCopied;
    }

    private boolean beginMessage(PostSend.Request request, PeerReceives receives) {
        if (request.opcode == Opcode.WRITE_WITH_IMM) {
            return begin(request, Access.REMOTE_WRITE);
        }
        long number = claim.number();
        long keyAndLength = receives.keyAndLength(number);
        return receives.hasOnePiece(number)
                && request.total <= Integer.toUnsignedLong((int) keyAndLength)
                && begin(request, (int) (keyAndLength >>> 32), receives.address(number), 0);
    }

    private void endMessage(PostSend.Request request, boolean isCopied) {
        if (isCopied) {
            wake(claim.complete(request, 0), request.isSolicited);
        } else if (!claim.giveBack()) {
            // The engine has taken later receives, since one of the queue pairs has failed. This one must complete before them.
            wake(claim.complete(request, CompletionStatus.FLUSHED.ordinal()), true);
        }
    }

    private boolean begin(PostSend.Request request, int need) {
        return begin(request, request.rkey, request.remoteAddress, need);
    }

    /** Announces and checks an operation; if true, the request's target is the place of the bytes. */
    private boolean begin(PostSend.Request request, int rkey, long address, int need) {
        return claim.announce(peer.qpn(), rkey)
                && peer.isConnected()
                && peer.permits(need)
                && peer.locate(request.target, rkey, address, request.total, need);
    }

    private static void copy(PostSend.Request request) {
        Peer.Target target = request.target;
        if (request.isInline) {
            Copies.copyLastRelease(request.image, request.at + Layout.WQE_DATA, target.memory, target.at, request.total);
            return;
        }
        long to = target.at;
        int last = lastWithBytes(request);
        for (int i = 0; i <= last; i++) {
            MemoryRegion region = request.regions[i];
            long from = region.start + request.offsets[i];
            if (i == last) {
                Copies.copyLastRelease(region.base, from, target.memory, to, request.lengths[i]);
            } else {
                MemorySegment.copy(region.base, from, target.memory, to, request.lengths[i]);
            }
            to += request.lengths[i];
        }
    }

    private static int lastWithBytes(PostSend.Request request) {
        int last = request.lengths.length - 1;
        while (request.lengths[last] == 0) {
            last--;
        }
        return last;
    }

    /** Wakes the thread that waits like this for a receive. */
    private void wake(long armed, boolean isSolicited) {
        if (armed == 0 || armed == Layout.ARM_SOLICITED && !isSolicited) {
            return;
        }
        long bell = claim.disarm(armed);
        if (bell != 0) {
            context.ring(bell);
        }
    }
}
