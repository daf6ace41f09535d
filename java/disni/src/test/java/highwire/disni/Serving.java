package highwire.disni;

import java.net.InetAddress;

/** The server of {@link Conversation} as a program of its own: says where it is, and then what it was sent. */
final class Serving {
    private Serving() {}

    public static void main(String[] arguments) throws Exception {
        String text = Conversation.serve(InetAddress.getLoopbackAddress(), address -> System.out.println(address.getPort()));
        System.out.println(text);
    }
}
