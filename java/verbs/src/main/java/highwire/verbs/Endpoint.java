package highwire.verbs;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The data of a queue pair that its peer needs. Its text is {@code qpn-psn@address}, as in
 * {@code 00abcd-123456@127.83.20.7}, the same that Highwire's programs in other languages print and read.
 * Applications may exchange it in any way.
 *
 * @param address the device
 * @param qpn the queue pair
 * @param psn the first packet sequence number that it will send
 */
public record Endpoint(InetAddress address, int qpn, int psn) {
    private static final Pattern TEXT = Pattern.compile("([0-9a-fA-F]{1,6})-([0-9a-fA-F]{1,6})@([0-9a-fA-F.:]+)");

    /**
     * Reads the text form.
     *
     * @param text a peer's text
     * @return the endpoint
     * @throws IllegalArgumentException the text is no endpoint
     */
    public static Endpoint parse(String text) {
        Matcher matcher = TEXT.matcher(text.strip());
        if (!matcher.matches()) {
            throw new IllegalArgumentException("`" + text + "` is no endpoint; one looks like 00abcd-123456@127.83.20.7");
        }
        try {
            // Digits and colons only, so that no name is ever looked up.
            InetAddress address = InetAddress.getByName(matcher.group(3));
            return new Endpoint(address, Integer.parseInt(matcher.group(1), 16), Integer.parseInt(matcher.group(2), 16));
        } catch (UnknownHostException e) {
            throw new IllegalArgumentException("`" + matcher.group(3) + "` is no IP address", e);
        }
    }

    @Override
    public String toString() {
        return String.format("%06x-%06x@%s", qpn, psn, address.getHostAddress());
    }
}
