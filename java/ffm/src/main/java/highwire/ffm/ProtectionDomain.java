package highwire.ffm;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import highwire.verbs.Access;
import highwire.verbs.Service;
import highwire.verbs.VerbsException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/** A domain of objects that belong together: regions are reached through queue pairs of their own domain. */
public final class ProtectionDomain extends NativeObject {
    final Device device;

    ProtectionDomain(Device device, MemorySegment pointer) {
        super(device.library, pointer, "protection domain", "ibv_dealloc_pd", device);
        this.device = device;
    }

    /**
     * Registers memory: any beside the heap. It must stay as long as the region does; a device that pins memory needs a limit that permits it ({@code ulimit -l}).
     *
     * @param memory of an arena that any thread may use
     * @param access bits of {@link Access}
     * @return the region
     * @throws VerbsException the library refuses
     */
    public MemoryRegion register(MemorySegment memory, int access) throws VerbsException {
        checkOpen();
        if (!memory.isNative()) {
            throw new IllegalArgumentException("memory of the heap moves and cannot be registered");
        }
        MemorySegment pointer = library.make("ibv_reg_mr", this.pointer, memory, memory.byteSize(), access);
        return new MemoryRegion(this, pointer, memory, access);
    }

    /**
     * Makes a queue pair.
     *
     * @param service RC or UC
     * @param queue gets its completions
     * @param depth of each of its queues
     * @param sges pieces of a request
     * @return it
     * @throws VerbsException the library refuses
     */
    public QueuePair queuePair(Service service, CompletionQueue queue, int depth, int sges) throws VerbsException {
        checkOpen();
        queue.checkOpen();
        if (service == Service.UD) {
            throw new IllegalArgumentException("datagrams are not here; RC and UC are");
        }
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment init = arena.allocate(Layout.INIT_BYTES, 8);
            init.set(ADDRESS, Layout.INIT_SEND_CQ, queue.pointer);
            init.set(ADDRESS, Layout.INIT_RECV_CQ, queue.pointer);
            int[] capacities = {depth, depth, sges, sges, 0};
            for (int i = 0; i < capacities.length; i++) {
                init.set(JAVA_INT, Layout.INIT_CAP + 4L * i, capacities[i]);
            }
            init.set(JAVA_INT, Layout.INIT_QP_TYPE, service.number());
            return new QueuePair(this, queue, service, library.make("ibv_create_qp", pointer, init));
        }
    }
}
