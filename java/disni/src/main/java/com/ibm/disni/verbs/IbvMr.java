package com.ibm.disni.verbs;

import highwire.verbs.MemoryRegion;
import java.io.IOException;
import java.nio.ByteBuffer;

/** Registered memory. Its buffer is kept from being collected as long as the region is. */
public class IbvMr {
    /** This end may write. */
    public static final int IBV_ACCESS_LOCAL_WRITE = 1;
    /** Peers may write. */
    public static final int IBV_ACCESS_REMOTE_WRITE = 1 << 1;
    /** Peers may read. */
    public static final int IBV_ACCESS_REMOTE_READ = 1 << 2;
    /** Peers may execute atomics. */
    public static final int IBV_ACCESS_REMOTE_ATOMIC = 1 << 3;

    private final IbvPd pd;
    private final MemoryRegion region;
    private final ByteBuffer buffer;

    IbvMr(IbvPd pd, MemoryRegion region, ByteBuffer buffer) {
        this.pd = pd;
        this.region = region;
        this.buffer = buffer;
    }

    /** {@return the address of the first byte, for work requests of either end} */
    public long getAddr() {
        return region.address();
    }

    /** {@return how many bytes} */
    public int getLength() {
        return buffer.capacity();
    }

    /** {@return the key of the memory for this end} */
    public int getLkey() {
        return region.lkey();
    }

    /** {@return the key of the memory for peers} */
    public int getRkey() {
        return region.rkey();
    }

    /** {@return the device that it belongs to} */
    public IbvContext getContext() {
        return pd.getContext();
    }

    /** {@return whether it was not closed} */
    public boolean isOpen() {
        return !region.isClosed();
    }

    /**
     * A call that gives the region back.
     *
     * @return the call
     * @throws IOException never
     */
    public SVCDeregMr deregMr() throws IOException {
        return new DeregMr(pd, region.lkey());
    }

    @Override
    public String toString() {
        return getLength() + " bytes at " + Long.toHexString(getAddr()) + ", key " + Integer.toHexString(getLkey());
    }

    private static final class DeregMr extends SVCDeregMr {
        private final IbvPd pd;
        private final int lkey;

        DeregMr(IbvPd pd, int lkey) {
            this.pd = pd;
            this.lkey = lkey;
        }

        @Override
        public SVCDeregMr execute() throws IOException {
            pd.deregister(lkey);
            return this;
        }

        @Override
        public boolean isValid() {
            return pd.isOpen();
        }

        @Override
        public SVCDeregMr free() {
            return this;
        }
    }
}
