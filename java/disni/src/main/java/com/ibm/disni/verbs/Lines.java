package com.ibm.disni.verbs;

import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

/**
 * How two ends find each other: lines over a TCP connection, which stays open as a sign of life.
 *
 * <pre>
 * client  disni 1 ENDPOINT          its queue pair
 * server  ok ENDPOINT | no REASON   once its program accepts
 * client  ready                     its queue pair can receive
 * </pre>
 */
final class Lines {
    static final String HELLO = "disni 1 ";
    static final String OK = "ok ";
    static final String NO = "no ";
    static final String READY = "ready";
    private static final int LENGTH_MAX = 512;

    private Lines() {}

    static void say(Socket socket, String line) throws IOException {
        socket.getOutputStream().write((line + "\n").getBytes(StandardCharsets.UTF_8));
        socket.getOutputStream().flush();
    }

    /** What the other end says, without the word that it must begin with. */
    static String hear(Socket socket, String begin) throws IOException {
        StringBuilder line = new StringBuilder();
        while (true) {
            int next = socket.getInputStream().read();
            if (next < 0) {
                throw new IOException("the other end hung up");
            }
            if (next == '\n') {
                break;
            }
            if (line.append((char) next).length() > LENGTH_MAX) {
                throw new IOException("the other end is none of these endpoints");
            }
        }
        if (line.indexOf(NO) == 0) {
            throw new IOException("the other end says no: " + line.substring(NO.length()));
        }
        if (line.indexOf(begin) != 0) {
            throw new IOException("the other end says `" + line + "` instead of `" + begin + "…`");
        }
        return line.substring(begin.length());
    }
}
