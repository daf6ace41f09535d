package com.ibm.disni.verbs;

import com.ibm.disni.util.MemoryUtils;
import highwire.verbs.ForeignMemoryException;
import highwire.verbs.MemoryRegion;
import highwire.verbs.ProtectionDomain;
import highwire.verbs.VerbsException;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** A protection domain. */
public class IbvPd {
    /** The device that it belongs to. */
    protected IbvContext context;
    /** Whether it was not closed. */
    protected volatile boolean isOpen = true;
    final ProtectionDomain domain;
    /** By local key; work requests name memory by address and key. */
    private final Map<Integer, MemoryRegion> regions = new ConcurrentHashMap<>();

    /**
     * Makes one.
     *
     * @param context the device
     * @throws IOException why not
     */
    public IbvPd(IbvContext context) throws IOException {
        this.context = context;
        this.domain = context.device.protectionDomain();
    }

    /** {@return the device that it belongs to} */
    public IbvContext getContext() {
        return context;
    }

    /** {@return whether it was not closed} */
    public boolean isOpen() {
        return isOpen;
    }

    /**
     * A call that registers a buffer, all of it, wherever its position and limit are.
     *
     * @param buffer memory of {@code MemoryAllocation}, or a slice of it
     * @param access bits of {@code IbvMr.IBV_ACCESS_…}
     * @return the call; executing it says {@link IOException} of any other memory
     * @throws IOException never
     */
    public SVCRegMr regMr(ByteBuffer buffer, int access) throws IOException {
        return new RegMr(buffer, access);
    }

    /** The region that a key names. */
    MemoryRegion region(int lkey) throws IOException {
        MemoryRegion region = regions.get(lkey);
        if (region == null) {
            throw new IOException("no region of this protection domain has the key " + Integer.toHexString(lkey));
        }
        return region;
    }

    void deregister(int lkey) throws VerbsException {
        MemoryRegion region = regions.get(lkey);
        if (region != null) {
            region.close();
            regions.remove(lkey);
        }
    }

    /**
     * Gives back every region that still is registered, and then the domain.
     *
     * @return 0
     * @throws IOException a queue pair still needs it
     */
    public int deallocPd() throws IOException {
        for (int lkey : new ArrayList<>(regions.keySet())) {
            deregister(lkey);
        }
        domain.close();
        isOpen = false;
        return 0;
    }

    private final class RegMr extends SVCRegMr {
        private final ByteBuffer buffer;
        private final int access;
        private IbvMr made;

        RegMr(ByteBuffer buffer, int access) {
            this.buffer = buffer;
            this.access = access;
        }

        @Override
        public SVCRegMr execute() throws IOException {
            MemorySegment memory = MemorySegment.ofBuffer(buffer.duplicate().clear());
            try {
                MemoryRegion region = domain.register(memory, access);
                regions.put(region.lkey(), region);
                made = new IbvMr(IbvPd.this, region, buffer);
            } catch (ForeignMemoryException e) {
                String where = buffer.isDirect() ? "at " + Long.toHexString(MemoryUtils.getAddress(buffer)) : "in the heap";
                throw new IOException("the buffer " + where + " is not shared with the engine: take it from "
                        + "com.ibm.disni.util.MemoryAllocation.getInstance().allocate(…).getBuffer(), not from ByteBuffer.allocateDirect(…)", e);
            }
            return this;
        }

        @Override
        public IbvMr getMr() {
            return made;
        }

        @Override
        public boolean isValid() {
            return isOpen;
        }

        @Override
        public SVCRegMr free() {
            return this;
        }
    }
}
