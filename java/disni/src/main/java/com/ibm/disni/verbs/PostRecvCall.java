package com.ibm.disni.verbs;

import highwire.verbs.MemoryRegion;
import highwire.verbs.PostRecv;
import highwire.verbs.QueueFullException;
import highwire.verbs.ReceiveRequest;
import java.io.IOException;
import java.util.List;

/** Receives, serialised once. */
final class PostRecvCall extends SVCPostRecv {
    private final PostRecv[] receives;
    private final long[] ids;

    PostRecvCall(IbvQP queuePair, List<IbvRecvWR> requests) throws IOException {
        this.receives = new PostRecv[requests.size()];
        this.ids = new long[receives.length];
        for (int i = 0; i < receives.length; i++) {
            IbvRecvWR request = requests.get(i);
            ids[i] = request.getWr_id();
            ReceiveRequest described = new ReceiveRequest().wrId(ids[i]);
            try {
                for (IbvSge sge : request.getSg_list()) {
                    MemoryRegion region = queuePair.getPd().region(sge.getLkey());
                    described.sge(region, sge.getAddr() - region.address(), sge.getLength());
                }
                receives[i] = queuePair.queuePair.postRecv(described);
            } catch (IndexOutOfBoundsException | IllegalArgumentException | IllegalStateException e) {
                throw new IOException("receive " + i + " cannot be posted: " + e.getMessage(), e);
            }
        }
    }

    @Override
    public SVCPostRecv execute() throws IOException {
        try {
            for (PostRecv receive : receives) {
                receive.exec();
            }
        } catch (QueueFullException e) {
            throw new IOException("the receive queue is full", e);
        } catch (IllegalStateException e) {
            throw new IOException(e.getMessage(), e);
        }
        return this;
    }

    @Override
    public RecvWRMod getWrMod(int index) throws IOException {
        if (index < 0 || index >= ids.length) {
            throw new IOException("the call has " + ids.length + " receives, none is number " + index);
        }
        return () -> ids[index];
    }

    @Override
    public boolean isValid() {
        for (PostRecv receive : receives) {
            if (!receive.valid()) {
                return false;
            }
        }
        return true;
    }

    @Override
    public SVCPostRecv free() {
        for (PostRecv receive : receives) {
            receive.free();
        }
        return this;
    }
}
