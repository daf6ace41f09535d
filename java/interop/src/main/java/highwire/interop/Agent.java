package highwire.interop;

import highwire.verbs.QueueFullException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/**
 * The JVM's end of the interop conversations: speaks the lines of the guest's verbs agent ({@code interop/guest/agent.h}) over a Unix-domain socket, with
 * mapped queues behind them. Every connection is a context of its own, which ends with it.
 */
public final class Agent {
    private Agent() {}

    /**
     * Serves until it is killed.
     *
     * @param args the socket's path
     * @throws IOException it cannot listen there
     */
    public static void main(String[] args) throws IOException {
        if (args.length != 1) {
            System.err.println("usage: highwire.interop.Agent SOCKET");
            System.exit(2);
        }
        try (ServerSocketChannel listening = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            listening.bind(UnixDomainSocketAddress.of(Path.of(args[0])));
            System.out.println("listening at " + args[0]);
            while (true) {
                SocketChannel socket = listening.accept();
                Thread.ofPlatform().daemon().start(() -> serve(socket));
            }
        }
    }

    private static void serve(SocketChannel socket) {
        try (socket;
                Objects objects = new Objects();
                BufferedReader in = new BufferedReader(new InputStreamReader(Channels.newInputStream(socket), StandardCharsets.UTF_8));
                PrintStream out = new PrintStream(Channels.newOutputStream(socket), true, StandardCharsets.UTF_8)) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                out.print(answer(new Request(line), objects) + "\n");
                out.flush();
            }
        } catch (IOException | InterruptedException e) {
            // The test sees that the connection has ended, and finds the reason here.
            e.printStackTrace();
        }
    }

    /** The line that answers a request. */
    static String answer(Request request, Objects objects) throws InterruptedException {
        try {
            return "ok " + carryOut(request, objects);
        } catch (Refusal refusal) {
            return refusal.line();
        } catch (QueueFullException e) {
            return new Refusal(Refusal.ENOMEM, e.getMessage()).line();
        } catch (IOException | RuntimeException e) {
            return new Refusal(Refusal.EINVAL, e.toString()).line();
        }
    }

    private static String carryOut(Request request, Objects objects) throws IOException, InterruptedException, Refusal {
        return switch (request.command) {
            case "open" -> objects.open();
            case "pd" -> objects.makePd();
            case "cq" -> objects.makeCq(request);
            case "srq" -> objects.makeSrq(request);
            case "mr" -> objects.makeMr(request);
            case "qp" -> objects.makeQp(request);
            case "ah" -> objects.makeAh(request);
            case "destroy" -> objects.destroy(request);
            case "init" -> objects.toInit(request);
            case "rtr" -> objects.toRtr(request);
            case "rts" -> objects.toRts(request);
            case "error" -> objects.toError(request);
            case "query" -> objects.query(request);
            case "fill" -> Pattern.fill(request, objects.regions);
            case "check" -> Pattern.check(request, objects.regions);
            case "poke" -> Pattern.poke(request, objects.regions);
            case "peek" -> Pattern.peek(request, objects.regions);
            case "send" -> Work.send(request, objects);
            case "recv" -> Work.receive(request, objects);
            case "poll" -> Work.poll(request, objects);
            default -> throw new Refusal(Refusal.ENOSYS, "the verbs in Java have no " + request.command);
        };
    }
}
