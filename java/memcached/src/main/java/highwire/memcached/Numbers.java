package highwire.memcached;

import java.nio.charset.StandardCharsets;

/**
 * Numbers as memcached reads them, with C's {@code strtol} and {@code strtoul}: blanks and a sign may stand before the digits, a blank ends them,
 * and a number that is too large for 32 bits loses its upper half.
 */
final class Numbers {
    private static final int BASE = 10;
    private static final long LAST_WHOLE = Long.divideUnsigned(-1L, BASE);

    private Numbers() {}

    private static boolean isBlank(int letter) {
        return letter == ' ' || letter >= '\t' && letter <= '\r';
    }

    /** A signed number of 32 bits; null if the text is none. */
    static Integer signed32(String text) {
        Long number = parse(text.getBytes(StandardCharsets.ISO_8859_1), true);
        return number == null ? null : (Integer) number.intValue();
    }

    /** An unsigned number of 32 bits; null if the text is none. */
    static Integer unsigned32(String text) {
        Long number = unsigned(text.getBytes(StandardCharsets.ISO_8859_1));
        return number == null ? null : (Integer) number.intValue();
    }

    /** An unsigned number of 64 bits; null if the text is none. */
    static Long unsigned(String text) {
        return unsigned(text.getBytes(StandardCharsets.ISO_8859_1));
    }

    /** An unsigned number of 64 bits; null if the text is none. */
    static Long unsigned(byte[] text) {
        return parse(text, false);
    }

    private static Long parse(byte[] text, boolean isSigned) {
        int at = 0;
        while (at < text.length && isBlank(text[at])) {
            at++;
        }
        boolean isNegative = at < text.length && text[at] == '-';
        if (isNegative || at < text.length && text[at] == '+') {
            at++;
        }
        int first = at;
        long number = 0;
        for (; at < text.length && text[at] >= '0' && text[at] <= '9'; at++) {
            int digit = text[at] - '0';
            long more = number * BASE + digit;
            if (Long.compareUnsigned(number, LAST_WHOLE) > 0 || Long.compareUnsigned(more, digit) < 0) {
                return null;
            }
            number = more;
        }
        // A zero byte ends a string in C.
        if (at == first || at < text.length && !isBlank(text[at]) && text[at] != 0) {
            return null;
        }
        if (isSigned) {
            boolean isInRange = number >= 0 || isNegative && number == Long.MIN_VALUE;
            return isInRange ? (Long) (isNegative ? -number : number) : null;
        }
        long value = isNegative ? -number : number;
        return isNegative && value < 0 ? null : (Long) value;
    }
}
