package highwire.verbs;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/**
 * Memory of peers behind the same engine. A file is mapped once for all queue pairs that hold it, and unmapped when the last of them has let
 * go: files are never used again under another name, so a mapping that nobody holds is of no use to anybody.
 */
final class PeerMappings {
    /** A mapped file, and how many queue pairs hold it. */
    static final class Mapping {
        final MemorySegment memory;
        private final int segment;
        private final Arena arena;
        private int holders;

        private Mapping(int segment, Arena arena, MemorySegment memory) {
            this.segment = segment;
            this.arena = arena;
            this.memory = memory;
        }
    }

    private final Path directory;
    private final Map<Integer, Mapping> mappings = new HashMap<>();
    private boolean isClosed;

    PeerMappings(Path directory) {
        this.directory = directory;
    }

    /** Memory of any program behind this engine; null if it is no longer there. {@link #release} must follow. */
    synchronized Mapping hold(int segment) {
        if (isClosed) {
            return null;
        }
        Mapping mapping = mappings.get(segment);
        if (mapping == null) {
            mapping = map(segment);
            if (mapping == null) {
                return null;
            }
            mappings.put(segment, mapping);
        }
        mapping.holders++;
        return mapping;
    }

    private Mapping map(int segment) {
        Arena arena = Arena.ofShared();
        try {
            return new Mapping(segment, arena, Mapped.map(directory.resolve("mem-" + segment), arena));
        } catch (IOException e) {
            arena.close();
            return null;
        }
    }

    /** A queue pair lets go. */
    synchronized void release(Mapping mapping) {
        if (--mapping.holders == 0 && !isClosed) {
            mappings.remove(mapping.segment);
            mapping.arena.close();
        }
    }

    /** How many files are mapped. */
    synchronized int count() {
        return mappings.size();
    }

    synchronized void closeAll() {
        isClosed = true;
        mappings.values().forEach(mapping -> mapping.arena.close());
        mappings.clear();
    }
}
