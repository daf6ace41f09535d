package highwire.ffm;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.lang.foreign.MemorySegment;

/** Memory that the device reaches. */
public final class MemoryRegion extends NativeObject {
    final ProtectionDomain domain;
    final int access;
    private final MemorySegment segment;
    private final int lkey;
    private final int rkey;

    MemoryRegion(ProtectionDomain domain, MemorySegment pointer, MemorySegment segment, int access) {
        super(domain.library, pointer, "region", "ibv_dereg_mr", domain);
        this.domain = domain;
        this.segment = segment;
        this.access = access;
        lkey = pointer.get(JAVA_INT, Layout.MR_LKEY);
        rkey = pointer.get(JAVA_INT, Layout.MR_RKEY);
    }

    /** {@return its memory} */
    public MemorySegment segment() {
        return segment;
    }

    /** {@return its first address, which peers name} */
    public long address() {
        return segment.address();
    }

    /** {@return how long it is} */
    public long length() {
        return segment.byteSize();
    }

    /** {@return the key for this program's own requests} */
    public int lkey() {
        return lkey;
    }

    /** {@return the key for peers} */
    public int rkey() {
        return rkey;
    }
}
