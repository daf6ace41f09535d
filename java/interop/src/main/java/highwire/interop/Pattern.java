package highwire.interop;

import highwire.verbs.MemoryRegion;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.HexFormat;
import java.util.List;

/** Test data that both ends make from a seed, and looking at memory. */
final class Pattern {
    private Pattern() {}

    /** Byte {@code index} of a seed's pattern, the same as the guest's agent makes ({@code interop/guest/work.c}). */
    static byte at(long seed, long index) {
        long x = (seed + 1) * 0x9e3779b97f4a7c15L + index / 8;
        x = (x ^ x >>> 30) * 0xbf58476d1ce4e5b9L;
        x = (x ^ x >>> 27) * 0x94d049bb133111ebL;
        x ^= x >>> 31;
        return (byte) (x >>> 8 * (index % 8));
    }

    /** The memory that {@code mr=}, {@code offset=} and {@code length=} name, within its bounds. */
    private static MemorySegment stretch(Request request, List<MemoryRegion> regions) throws Refusal {
        MemorySegment memory = request.object("mr", regions).segment();
        long offset = request.countOr("offset", 0);
        if (offset > memory.byteSize()) {
            throw new Refusal(Refusal.ERANGE, "offset " + offset + " is outside the MR");
        }
        long length = request.has("length") ? request.count("length") : memory.byteSize() - offset;
        if (length > memory.byteSize() - offset) {
            throw new Refusal(Refusal.ERANGE, length + " bytes at " + offset + " are outside the MR");
        }
        return memory.asSlice(offset, length);
    }

    static String fill(Request request, List<MemoryRegion> regions) throws Refusal {
        MemorySegment memory = stretch(request, regions);
        long seed = request.number("seed");
        for (long i = 0; i < memory.byteSize(); i++) {
            memory.set(ValueLayout.JAVA_BYTE, i, at(seed, i));
        }
        return "";
    }

    static String check(Request request, List<MemoryRegion> regions) throws Refusal {
        MemorySegment memory = stretch(request, regions);
        long seed = request.number("seed");
        for (long i = 0; i < memory.byteSize(); i++) {
            if (memory.get(ValueLayout.JAVA_BYTE, i) != at(seed, i)) {
                return "match=0 at=" + i;
            }
        }
        return "match=1";
    }

    static String poke(Request request, List<MemoryRegion> regions) throws Refusal {
        MemorySegment memory = stretch(request, regions);
        byte[] bytes;
        try {
            bytes = HexFormat.of().parseHex(request.text("hex"));
        } catch (IllegalArgumentException e) {
            throw new Refusal(Refusal.EINVAL, request.text("hex") + " is not hexadecimal");
        }
        if (bytes.length > memory.byteSize()) {
            throw new Refusal(Refusal.ERANGE, bytes.length + " bytes do not fit");
        }
        MemorySegment.copy(bytes, 0, memory, ValueLayout.JAVA_BYTE, 0, bytes.length);
        return "";
    }

    static String peek(Request request, List<MemoryRegion> regions) throws Refusal {
        return "hex=" + HexFormat.of().formatHex(stretch(request, regions).toArray(ValueLayout.JAVA_BYTE));
    }
}
