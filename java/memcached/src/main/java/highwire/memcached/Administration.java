package highwire.memcached;

import highwire.memcached.Counters.Counter;
import java.util.function.BiConsumer;

/** Commands of the text protocol that are about the server, not about a key. */
final class Administration {
    private final Session session;
    private final Store store;
    private final Output out;

    Administration(Session session) {
        this.session = session;
        this.store = session.store;
        this.out = session.output;
    }

    void command(String[] words) {
        switch (words.length == 0 ? "" : words[0]) {
            case "version" -> out.line("VERSION " + TextProtocol.VERSION);
            case "stats" -> stats(words);
            case "slabs" -> slabs(words);
            case "shutdown" -> out.line("ERROR: shutdown not enabled");
            case "rdma" -> session.admit(words.length == 2 ? words[1] : "");
            default -> out.line("ERROR");
        }
    }

    private void slabs(String[] words) {
        String what = words.length < 3 ? "" : words[1];
        if (what.equals("reassign") && words.length == 4) {
            Integer from = Numbers.signed32(words[2]);
            Integer to = Numbers.signed32(words[3]);
            out.line(from == null || to == null ? TextProtocol.BAD_FORMAT : text(store.reassign(from, to)));
        } else if (what.equals("automove")) {
            automove(words);
        } else {
            out.line("ERROR");
        }
    }

    private static String text(Shelf.Move move) {
        return switch (move) {
            case OK -> "OK";
            case BADCLASS -> "BADCLASS invalid src or dst class id";
            case NOSPARE -> "NOSPARE source class has no spare pages";
            case SAME -> "SAME src and dst class are identical";
        };
    }

    private void automove(String[] words) {
        boolean isQuiet = words[words.length - 1].equals("noreply");
        Integer level = Numbers.unsigned32(words[2]);
        boolean isKnown = level != null && level >= 0 && level <= 2;
        if (isKnown) {
            store.sweeps(level > 0);
        }
        if (!isQuiet) {
            out.line(isKnown ? "OK" : level == null ? TextProtocol.BAD_FORMAT : "ERROR");
        }
    }

    private void stats(String[] words) {
        BiConsumer<String, Object> visitor = (name, value) -> out.line("STAT " + name + " " + value);
        String what = words.length == 1 ? "" : words[1];
        switch (what) {
            case "" -> {
                session.server.stats(visitor);
                store.stats(visitor);
            }
            case "items", "slabs" -> store.slabStats(what.equals("items"), visitor);
            case "settings" -> settings(visitor);
            case "reset" -> {
                store.counters.reset();
                out.line("RESET");
                return;
            }
            default -> {
                out.line("ERROR");
                return;
            }
        }
        out.line("END");
    }

    private void settings(BiConsumer<String, Object> visitor) {
        visitor.accept("maxbytes", store.options.bytes());
        visitor.accept("item_size_max", store.options.itemBytes());
        visitor.accept("chunk_rest_ms", store.options.restMillis());
        visitor.accept("evictions", "on");
        visitor.accept("cas_enabled", "yes");
        visitor.accept("flush_enabled", "yes");
        visitor.accept("slab_reassign", "yes");
        visitor.accept("slab_automove", store.sweeps() ? 1 : 0);
        visitor.accept("curr_connections", store.counters.get(Counter.curr_connections));
    }
}
