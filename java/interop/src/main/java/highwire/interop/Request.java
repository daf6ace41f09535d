package highwire.interop;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** One request line: a command and {@code key=value} words, as {@code interop/guest/agent.h} describes them. */
final class Request {
    final String command;
    private final Map<String, String> words = new HashMap<>();

    Request(String line) {
        String[] parts = line.strip().split(" +");
        command = parts[0];
        for (int i = 1; i < parts.length; i++) {
            int equals = parts[i].indexOf('=');
            if (equals > 0) {
                words.putIfAbsent(parts[i].substring(0, equals), parts[i].substring(equals + 1));
            }
        }
    }

    boolean has(String key) {
        return words.containsKey(key);
    }

    String text(String key) throws Refusal {
        String value = words.get(key);
        if (value == null) {
            throw new Refusal(Refusal.EINVAL, command + " needs " + key + "=");
        }
        return value;
    }

    String textOr(String key, String fallback) {
        return words.getOrDefault(key, fallback);
    }

    /** A number of 64 bits without a sign, decimal or 0x…. */
    long number(String key) throws Refusal {
        String text = text(key);
        try {
            return text.startsWith("0x") ? Long.parseUnsignedLong(text.substring(2), 16) : Long.parseUnsignedLong(text);
        } catch (NumberFormatException e) {
            throw new Refusal(Refusal.EINVAL, key + "=" + text + " is no number");
        }
    }

    /** A number of 32 bits without a sign. */
    int word(String key) throws Refusal {
        long number = number(key);
        if (number >>> 32 != 0) {
            throw new Refusal(Refusal.ERANGE, key + "=" + text(key) + " has more than 32 bits");
        }
        return (int) number;
    }

    /** A count of things that fit into memory. */
    int count(String key) throws Refusal {
        int count = word(key);
        if (count < 0) {
            throw new Refusal(Refusal.ERANGE, key + "=" + text(key) + " is too many");
        }
        return count;
    }

    int countOr(String key, int fallback) throws Refusal {
        return has(key) ? count(key) : fallback;
    }

    /** The object that a number stands for. */
    <T> T object(String key, List<T> objects) throws Refusal {
        return object(key, count(key), objects);
    }

    static <T> T object(String kind, int number, List<T> objects) throws Refusal {
        T found = number < objects.size() ? objects.get(number) : null;
        if (found == null) {
            throw new Refusal(Refusal.ENOENT, "there is no " + kind + " " + number);
        }
        return found;
    }
}
