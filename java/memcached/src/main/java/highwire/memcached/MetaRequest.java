package highwire.memcached;

import java.io.ByteArrayOutputStream;
import java.util.Base64;

/** A meta command's key and flags, checked in the order in which memcached checks them. */
final class MetaRequest {
    /** An error of a command, with the text of its answer. */
    static final class Refusal extends Exception {
        private static final long serialVersionUID = 1;

        Refusal(String line) {
            super(line, null, false, false);
        }
    }

    private static final String BAD_TOKEN = "CLIENT_ERROR bad token in command line format";
    private static final String KNOWN = "bNTRlOPLkstcfvhuqFCMJDI";
    private static final int OPAQUE_MAX = 32;
    private static final int ALPHABET = 128;

    final String[] words;
    /** The place of the first flag. */
    final int first;
    byte[] key;
    boolean isBinaryKey;
    int seconds;
    boolean hasExpiry;
    int vivifySeconds;
    boolean vivifies;
    int recacheSeconds;
    int clientFlags;
    /** The unique number that the item must have; null if there is none. */
    Long expected;
    char mode;
    long initial;
    long delta = 1;
    /** Whether {@code md} keeps the item, without its value. */
    boolean keepsItem;

    private String refusal;
    private final boolean[] seen = new boolean[ALPHABET];

    /** Reads the flags, from word {@code first} on. */
    MetaRequest(String[] words, int first) throws Refusal {
        this.words = words;
        this.first = first;
        this.key = Session.bytes(words[1]);
        for (int i = first; i < words.length; i++) {
            read(words[i]);
        }
        if (refusal != null) {
            throw new Refusal(refusal);
        }
    }

    private void read(String word) throws Refusal {
        char flag = word.charAt(0);
        if (flag >= ALPHABET - 1 || seen[flag]) {
            throw new Refusal("CLIENT_ERROR duplicate flag");
        }
        seen[flag] = true;
        if (KNOWN.indexOf(flag) < 0 && !(flag == 'x' && words[0].equals("md"))) {
            throw new Refusal("CLIENT_ERROR invalid flag");
        }
        String token = word.substring(1);
        switch (flag) {
            case 'b' -> {
                byte[] decoded = decode(key);
                if (decoded.length == 0) {
                    refusal = "CLIENT_ERROR error decoding key";
                }
                key = decoded;
                isBinaryKey = true;
            }
            case 'N' -> {
                vivifies = true;
                vivifySeconds = number(token);
            }
            case 'T' -> {
                seconds = number(token);
                hasExpiry = true;
            }
            case 'R' -> recacheSeconds = number(token);
            case 'F' -> {
                Integer number = Numbers.unsigned32(token);
                if (number == null && refusal == null) {
                    refusal = TextProtocol.BAD_FORMAT;
                }
                clientFlags = number == null ? 0 : number;
            }
            case 'C' -> expected = unsigned(token, BAD_TOKEN);
            case 'J' -> initial = unsigned(token, "CLIENT_ERROR invalid numeric initial value");
            case 'D' -> delta = unsigned(token, "CLIENT_ERROR invalid numeric delta value");
            case 'M' -> {
                if (token.length() != 1) {
                    refusal = "CLIENT_ERROR incorrect length for M token";
                } else {
                    mode = token.charAt(0);
                }
            }
            case 'x' -> keepsItem = true;
            default -> { }
        }
    }

    private int number(String token) {
        Integer number = Numbers.signed32(token);
        if (number == null) {
            refusal = BAD_TOKEN;
        }
        return number == null ? 0 : number;
    }

    private long unsigned(String token, String otherwise) {
        Long number = Numbers.unsigned(token);
        if (number == null) {
            refusal = otherwise;
        }
        return number == null ? 0 : number;
    }

    boolean has(char flag) {
        return seen[flag];
    }

    /** Whether a token that the client wants back is too long for that. */
    boolean hasLongOpaque() {
        for (int i = first; has('O') && i < words.length; i++) {
            if (words[i].charAt(0) == 'O' && words[i].length() > OPAQUE_MAX) {
                return true;
            }
        }
        return false;
    }

    /** Refuses such a token. */
    void checkOpaque() throws Refusal {
        if (hasLongOpaque()) {
            throw new Refusal("CLIENT_ERROR opaque token too long");
        }
    }

    /** What a flag of this request gives back, if that does not depend on an item; the key as an item names it. */
    String echo(String word, boolean isBinary) {
        return switch (word.charAt(0)) {
            case 'k' -> " k" + name(key, isBinary) + (isBinary ? " b" : "");
            case 'O' -> " " + word;
            default -> "";
        };
    }

    String echoes() {
        StringBuilder flags = new StringBuilder();
        for (int i = first; i < words.length; i++) {
            flags.append(echo(words[i], isBinaryKey));
        }
        return flags.toString();
    }

    static String name(byte[] key, boolean isBinary) {
        byte[] name = isBinary ? Base64.getEncoder().encode(key) : key;
        return new String(name, java.nio.charset.StandardCharsets.ISO_8859_1);
    }

    /** Decodes base 64 as memcached does, which leaves out foreign letters; no bytes if it cannot be decoded. */
    static byte[] decode(byte[] text) {
        ByteArrayOutputStream letters = new ByteArrayOutputStream();
        for (byte letter : text) {
            boolean isLetter = letter >= 'a' && letter <= 'z' || letter >= 'A' && letter <= 'Z' || letter >= '0' && letter <= '9';
            if (isLetter || letter == '+' || letter == '/' || letter == '=') {
                letters.write(letter);
            }
        }
        byte[] kept = letters.toByteArray();
        if (kept.length == 0 || kept.length % 4 != 0) {
            return new byte[0];
        }
        ByteArrayOutputStream decoded = new ByteArrayOutputStream();
        for (int at = 0; at < kept.length; at += 4) {
            int bits = 0;
            int padding = 0;
            for (int i = 0; i < 4; i++) {
                bits = bits << 6 | value(kept[at + i]);
                padding += kept[at + i] == '=' ? 1 : 0;
            }
            if (padding > 2) {
                return new byte[0];
            }
            for (int i = 0; i < 3 - padding; i++) {
                decoded.write(bits >> 16 - 8 * i);
            }
            if (padding > 0) {
                break;
            }
        }
        return decoded.toByteArray();
    }

    private static int value(byte letter) {
        if (letter >= 'A' && letter <= 'Z') {
            return letter - 'A';
        }
        if (letter >= 'a' && letter <= 'z') {
            return letter - 'a' + 26;
        }
        if (letter >= '0' && letter <= '9') {
            return letter - '0' + 52;
        }
        return letter == '+' ? 62 : letter == '/' ? 63 : 0;
    }
}
