package highwire.verbs;

import java.lang.foreign.Arena;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * What a context holds beside the heap: its connections, and the mappings of its objects. It knows no object of the program's, so that it
 * outlives a context that was forgotten, and gives back what that held.
 */
final class Resources {
    final Frames frames;
    final PeerMappings peers;
    final Ringer ringer;
    private final Set<Arena> arenas = ConcurrentHashMap.newKeySet();
    private final Set<Frames> channels = ConcurrentHashMap.newKeySet();
    private final Set<Bell> bells = ConcurrentHashMap.newKeySet();
    private volatile EngineWaker waker;

    Resources(Frames frames, PeerMappings peers, Ringer ringer) {
        this.frames = frames;
        this.peers = peers;
        this.ringer = ringer;
        // Threads that wait for completions hear of it as soon as the one that has asked.
        frames.onEnd(() -> channels.forEach(Frames::wakeup));
    }

    void add(EngineWaker made) {
        waker = made;
    }

    void add(Frames channel) {
        channels.add(channel);
    }

    void close(Frames channel) {
        channels.remove(channel);
        channel.close();
    }

    void add(Bell bell) {
        bells.add(bell);
    }

    /** Whether the bell had not been closed. */
    boolean remove(Bell bell) {
        return bells.remove(bell);
    }

    /** An arena for mappings that go together. */
    Arena open() {
        Arena arena = Arena.ofShared();
        arenas.add(arena);
        return arena;
    }

    void close(Arena arena) {
        arenas.remove(arena);
        arena.close();
    }

    /** Gives back everything. Mappings go first: no thread here sees memory that the engine takes back afterwards. */
    void closeAll() {
        peers.closeAll();
        for (Arena arena : arenas) {
            close(arena);
        }
        if (waker != null) {
            waker.close();
        }
        ringer.close();
        bells.forEach(Bell::shut);
        channels.forEach(this::close);
        frames.close();
    }
}
