package highwire.ffm;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import highwire.verbs.VerbsException;
import java.lang.foreign.AddressLayout;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The functions of libibverbs. Control calls go by name and report errno; posts and polls go through the table of their context, as the inline functions of C's header do, by handles that
 * the compiler knows.
 */
final class Libibverbs {
    /** The property that names the library, if it is not the system's. */
    static final String PROPERTY = "highwire.libibverbs";

    private static final Linker LINKER = Linker.nativeLinker();
    private static final AddressLayout WIDE = ADDRESS.withTargetLayout(MemoryLayout.sequenceLayout(Long.MAX_VALUE, JAVA_BYTE));
    private static final StructLayout STATE = Linker.Option.captureStateLayout();
    private static final long ERRNO = STATE.byteOffset(MemoryLayout.PathElement.groupElement("errno"));

    /** {@code int f(queue, request, bad request)}. */
    private static final MethodHandle POST = LINKER.downcallHandle(FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, ADDRESS));
    /** {@code int f(queue, count, completions)}. */
    private static final MethodHandle POLL = LINKER.downcallHandle(FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT, ADDRESS));
    /** {@code int f(queue, solicited)}. */
    private static final MethodHandle NOTIFY = LINKER.downcallHandle(FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT));

    private static final String NO_THROW = "a call into the library does not throw";

    private static Libibverbs loaded;

    private final SymbolLookup symbols;
    private final Map<String, MethodHandle> handles = new HashMap<>();

    private Libibverbs(SymbolLookup symbols) {
        this.symbols = symbols;
    }

    /** The library that {@code highwire.libibverbs} names, or the one that the system finds. */
    static synchronized Libibverbs load() throws VerbsException {
        if (loaded == null) {
            String name = System.getProperty(PROPERTY, "libibverbs.so.1");
            try {
                loaded = new Libibverbs(SymbolLookup.libraryLookup(name, Arena.global()));
            } catch (IllegalArgumentException e) {
                throw new NoDriverException("there is no " + name + ": install rdma-core, or set LD_LIBRARY_PATH or -D" + PROPERTY, e);
            }
        }
        return loaded;
    }

    private synchronized MethodHandle handle(String name, ValueLayout result, Object... arguments) throws VerbsException {
        MethodHandle known = handles.get(name);
        if (known == null) {
            ValueLayout[] layouts = new ValueLayout[arguments.length];
            for (int i = 0; i < layouts.length; i++) {
                layouts[i] = switch (arguments[i]) {
                    case Integer number -> JAVA_INT;
                    case Long number -> JAVA_LONG;
                    case Byte number -> JAVA_BYTE;
                    default -> ADDRESS;
                };
            }
            MemorySegment symbol = symbols.find(name).or(() -> LINKER.defaultLookup().find(name))
                    .orElseThrow(() -> new NoDriverException("the library has no " + name, null));
            FunctionDescriptor descriptor = result == null ? FunctionDescriptor.ofVoid(layouts) : FunctionDescriptor.of(result, layouts);
            known = LINKER.downcallHandle(symbol, descriptor, Linker.Option.captureCallState("errno"));
            handles.put(name, known);
        }
        return known;
    }

    private static Object call(MethodHandle handle, MemorySegment state, Object... arguments) {
        List<Object> all = new ArrayList<>(arguments.length + 1);
        all.add(state);
        all.addAll(List.of(arguments));
        try {
            return handle.invokeWithArguments(all);
        } catch (Throwable e) {
            throw new AssertionError(NO_THROW, e);
        }
    }

    /** A function that makes something; null is a failure. */
    MemorySegment make(String name, Object... arguments) throws VerbsException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment state = arena.allocate(STATE);
            MemorySegment made = (MemorySegment) call(handle(name, WIDE, arguments), state, arguments);
            if (made.equals(MemorySegment.NULL)) {
                throw new NativeVerbsException(name, state.get(JAVA_INT, ERRNO));
            }
            return made;
        }
    }

    /** A function that returns 0, or errno, or −1 and sets errno. */
    void run(String name, Object... arguments) throws VerbsException {
        int result = number(name, arguments);
        if (result != 0) {
            throw new NativeVerbsException(name, Math.abs(result));
        }
    }

    /** A function that returns a number; −1 is returned as the negative errno. */
    int number(String name, Object... arguments) throws VerbsException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment state = arena.allocate(STATE);
            int result = (int) call(handle(name, JAVA_INT, arguments), state, arguments);
            return result == -1 ? -state.get(JAVA_INT, ERRNO) : result;
        }
    }

    /** A function that returns nothing. */
    void tell(String name, Object... arguments) throws VerbsException {
        try (Arena arena = Arena.ofConfined()) {
            call(handle(name, null, arguments), arena.allocate(STATE), arguments);
        }
    }

    static int post(MemorySegment function, MemorySegment queue, MemorySegment request, MemorySegment bad) {
        try {
            return (int) POST.invokeExact(function, queue, request, bad);
        } catch (Throwable e) {
            throw new AssertionError(NO_THROW, e);
        }
    }

    static int poll(MemorySegment function, MemorySegment queue, int count, MemorySegment completions) {
        try {
            return (int) POLL.invokeExact(function, queue, count, completions);
        } catch (Throwable e) {
            throw new AssertionError(NO_THROW, e);
        }
    }

    static int notify(MemorySegment function, MemorySegment queue, int solicited) {
        try {
            return (int) NOTIFY.invokeExact(function, queue, solicited);
        } catch (Throwable e) {
            throw new AssertionError(NO_THROW, e);
        }
    }
}
