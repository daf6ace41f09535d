package highwire.ffm;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import highwire.verbs.VerbsException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.List;

/** A device of the machine: a card, the kernel's software RNIC, or Highwire behind the drop-in library. Its first port is used, with one of its RoCE v2 addresses. */
public final class Device extends NativeObject {
    static final byte PORT = 1;
    private static final int ROCE_V2 = 2;
    private static final int PORT_ACTIVE = 4;

    final MemorySegment pollCq;
    final MemorySegment requestNotify;
    final MemorySegment postSend;
    final MemorySegment postRecv;
    /** In the numbers of {@code ibv_mtu}. */
    final int mtu;
    final byte gidIndex;
    private final InetAddress address;

    private Device(Libibverbs library, MemorySegment context, int gidIndex) throws VerbsException {
        super(library, context, "device", "ibv_close_device");
        MemorySegment ops = context.asSlice(Layout.CONTEXT_OPS);
        pollCq = ops.get(ADDRESS, Layout.OPS_POLL_CQ);
        requestNotify = ops.get(ADDRESS, Layout.OPS_REQ_NOTIFY_CQ);
        postSend = ops.get(ADDRESS, Layout.OPS_POST_SEND);
        postRecv = ops.get(ADDRESS, Layout.OPS_POST_RECV);
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment port = arena.allocate(Layout.PORT_BYTES, 8);
            library.run("ibv_query_port", context, PORT, port);
            if (port.get(JAVA_INT, Layout.PORT_STATE) != PORT_ACTIVE) {
                throw new NoDriverException("the device's first port is not active", null);
            }
            mtu = port.get(JAVA_INT, Layout.PORT_ACTIVE_MTU);
            int index = gidIndex;
            if (index < 0) {
                index = find(arena, port.get(JAVA_INT, Layout.PORT_GID_TBL_LEN));
            }
            MemorySegment gid = arena.allocate(16, 8);
            library.run("ibv_query_gid", context, PORT, index, gid);
            this.gidIndex = (byte) index;
            address = InetAddress.getByAddress(gid.toArray(JAVA_BYTE));
        } catch (UnknownHostException e) {
            throw new AssertionError("sixteen bytes are an address", e);
        }
    }

    /** The first RoCE v2 address that is IPv4, or else the first one. */
    private int find(Arena arena, int count) throws VerbsException {
        MemorySegment entry = arena.allocate(Layout.GID_ENTRY_BYTES, 8);
        int found = -1;
        for (int i = 0; i < count; i++) {
            // Empty places of the table are errors.
            if (library.number("_ibv_query_gid_ex", pointer, (int) PORT, i, entry, 0, Layout.GID_ENTRY_BYTES) != 0 || entry.get(JAVA_INT, Layout.GID_ENTRY_GID_TYPE) != ROCE_V2) {
                continue;
            }
            if (entry.get(JAVA_LONG, 0) == 0 && entry.get(JAVA_INT, 8) == 0xFFFF_0000) {
                return i;
            }
            found = found < 0 ? i : found;
        }
        if (found < 0) {
            throw new NoDriverException("the device has no RoCE v2 address", null);
        }
        return found;
    }

    /**
     * Lists the devices.
     *
     * @return their names
     * @throws VerbsException there is no libibverbs
     */
    public static List<String> names() throws VerbsException {
        List<String> names = new ArrayList<>();
        eachDevice((library, name, device) -> names.add(name));
        return names;
    }

    /**
     * Opens a device, at the first RoCE v2 address of IPv4 that it has, or else of IPv6.
     *
     * @param name as {@link #names} has it
     * @return it
     * @throws VerbsException there is none of that name, or it cannot be opened
     */
    public static Device open(String name) throws VerbsException {
        return open(name, -1);
    }

    /**
     * Opens a device.
     *
     * @param name as {@link #names} has it
     * @param gidIndex the place of its address in the table of the first port
     * @return it
     * @throws VerbsException there is none of that name, or it cannot be opened
     */
    public static Device open(String name, int gidIndex) throws VerbsException {
        MemorySegment[] context = new MemorySegment[1];
        Libibverbs[] from = new Libibverbs[1];
        List<String> others = new ArrayList<>();
        eachDevice((library, each, device) -> {
            others.add(each);
            if (each.equals(name)) {
                from[0] = library;
                context[0] = library.make("ibv_open_device", device);
            }
        });
        if (context[0] == null) {
            throw new NoDriverException("there is no device " + name + "; there are " + others, null);
        }
        try {
            return new Device(from[0], context[0], gidIndex);
        } catch (VerbsException e) {
            from[0].run("ibv_close_device", context[0]);
            throw e;
        }
    }

    @FunctionalInterface
    private interface Each {
        void device(Libibverbs library, String name, MemorySegment device) throws VerbsException;
    }

    private static void eachDevice(Each each) throws VerbsException {
        Libibverbs library = Libibverbs.load();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment count = arena.allocate(JAVA_INT);
            MemorySegment list = library.make("ibv_get_device_list", count);
            try {
                for (int i = 0; i < count.get(JAVA_INT, 0); i++) {
                    MemorySegment device = list.get(ADDRESS, 8L * i);
                    each.device(library, library.make("ibv_get_device_name", device).getString(0), device);
                }
            } finally {
                library.tell("ibv_free_device_list", list);
            }
        }
    }

    /** {@return its address, which peers name} */
    public InetAddress address() {
        return address;
    }

    /**
     * {@return a new protection domain}
     *
     * @throws VerbsException the library refuses
     */
    public ProtectionDomain protectionDomain() throws VerbsException {
        checkOpen();
        return new ProtectionDomain(this, library.make("ibv_alloc_pd", pointer));
    }

    /**
     * {@return a new channel, on which threads sleep}
     *
     * @throws VerbsException the library refuses
     */
    public CompletionChannel completionChannel() throws VerbsException {
        checkOpen();
        return new CompletionChannel(this, library.make("ibv_create_comp_channel", pointer));
    }

    /**
     * Makes a queue that is polled.
     *
     * @param capacity completions that it holds at least
     * @return a new queue that is polled
     * @throws VerbsException the library refuses
     */
    public CompletionQueue completionQueue(int capacity) throws VerbsException {
        checkOpen();
        return new CompletionQueue(this, null, library.make("ibv_create_cq", pointer, capacity, MemorySegment.NULL, MemorySegment.NULL, 0));
    }

    /**
     * Makes a queue that can be waited for.
     *
     * @param capacity completions that it holds at least
     * @param channel on which its threads sleep
     * @return it
     * @throws VerbsException the library refuses
     */
    public CompletionQueue completionQueue(int capacity, CompletionChannel channel) throws VerbsException {
        checkOpen();
        channel.checkOpen();
        return new CompletionQueue(this, channel, library.make("ibv_create_cq", pointer, capacity, MemorySegment.NULL, channel.pointer, 0));
    }
}
