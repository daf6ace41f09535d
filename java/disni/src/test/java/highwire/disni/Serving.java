package highwire.disni;

import java.net.InetAddress;

/**
 * The server of {@link Conversation} as a program of its own: prints its address, and then the text that it
 * gets.
 */
final class Serving {
    private Serving() {}

    public static void main(String[] arguments) throws Exception {
        String text = Conversation.serve(InetAddress.getLoopbackAddress(), address -> System.out.println(address.getPort()));
        System.out.println(text);
    }
}
