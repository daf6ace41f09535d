package highwire.interop;

import highwire.verbs.Access;
import highwire.verbs.CompletionChannel;
import highwire.verbs.CompletionQueue;
import highwire.verbs.Context;
import highwire.verbs.MemoryRegion;
import highwire.verbs.ProtectionDomain;
import highwire.verbs.QpAttr;
import highwire.verbs.QpState;
import highwire.verbs.QueuePair;
import highwire.verbs.QueuePairConfig;
import highwire.verbs.RdmaArena;
import highwire.verbs.Service;
import highwire.verbs.SharedReceiveQueue;
import highwire.verbs.VerbsException;
import highwire.verbs.VerbsObject;
import java.io.IOException;
import java.net.InetAddress;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;

/** The objects of one connection, by number; null if destroyed. Makes, connects and destroys them. */
final class Objects implements AutoCloseable {
    final List<CompletionQueue> cqs = new ArrayList<>();
    final List<SharedReceiveQueue> srqs = new ArrayList<>();
    final List<QueuePair> qps = new ArrayList<>();
    final List<MemoryRegion> regions = new ArrayList<>();
    final List<InetAddress> ahs = new ArrayList<>();
    private final List<ProtectionDomain> pds = new ArrayList<>();
    /** How each object is closed, the last one made first. Closing twice does no harm. */
    private final Deque<End> ends = new ArrayDeque<>();
    private Context context;

    private interface End {
        void come() throws VerbsException;
    }

    private <T extends VerbsObject> T keep(T object) {
        ends.push(object::close);
        return object;
    }

    private static <T> int number(List<T> objects, T object) {
        objects.add(object);
        return objects.size() - 1;
    }

    /** Opens the device behind the door that is found. It has one GID, number 0. */
    String open() throws IOException, Refusal {
        if (context != null) {
            throw new Refusal(Refusal.EINVAL, "a connection opens one device");
        }
        context = Context.open();
        ends.push(context::close);
        InetAddress address = context.address();
        String gid = (address.getAddress().length == 4 ? "::ffff:" : "") + address.getHostAddress();
        return "mtu=" + context.mtu() + " gid=0," + gid;
    }

    private Context context() throws Refusal {
        if (context == null) {
            throw new Refusal(Refusal.ENODEV, "open comes first");
        }
        return context;
    }

    String makePd() throws IOException, Refusal {
        return "pd=" + number(pds, keep(context().protectionDomain()));
    }

    /** Each queue has a channel of its own, so that a thread which waits for it sleeps. */
    String makeCq(Request request) throws IOException, Refusal {
        CompletionChannel channel = keep(context().completionChannel());
        return "cq=" + number(cqs, keep(context().completionQueue(request.count("depth"), channel)));
    }

    String makeSrq(Request request) throws IOException, Refusal {
        ProtectionDomain pd = request.object("pd", pds);
        return "srq=" + number(srqs, keep(pd.sharedReceiveQueue(request.count("wr"), request.countOr("sge", 4))));
    }

    String makeMr(Request request) throws IOException, Refusal {
        ProtectionDomain pd = request.object("pd", pds);
        int bytes = request.count("bytes");
        int access = access(request.text("access"));
        RdmaArena arena = keep(context().arena(Math.max(1, bytes)));
        MemoryRegion region = keep(pd.register(arena.allocate(bytes, 1), access));
        return String.format(
                "mr=%d addr=0x%x lkey=0x%x rkey=0x%x", number(regions, region), region.address(), region.lkey(), region.rkey());
    }

    String makeQp(Request request) throws IOException, Refusal {
        ProtectionDomain pd = request.object("pd", pds);
        CompletionQueue cq = request.object("cq", cqs);
        if (request.countOr("sig_all", 0) != 0) {
            throw new Refusal(Refusal.ENOSYS, "the verbs in Java have no queue pair that signals everything");
        }
        int inline = request.countOr("inline", 64);
        QueuePairConfig config = QueuePairConfig.of(service(request.text("type")), cq)
                .withDepth(request.countOr("send_wr", 64), request.countOr("recv_wr", 64))
                .withSges(request.countOr("sge", 4), inline);
        if (request.has("srq")) {
            config = config.withSrq(request.object("srq", srqs));
        }
        QueuePair qp = keep(pd.queuePair(config));
        return "qp=" + number(qps, qp) + " qpn=" + qp.qpn() + " inline=" + inline;
    }

    private static Service service(String name) throws Refusal {
        return switch (name) {
            case "rc" -> Service.RC;
            case "uc" -> Service.UC;
            case "ud" -> Service.UD;
            default -> throw new Refusal(Refusal.EINVAL, "no QP type " + name);
        };
    }

    String makeAh(Request request) throws IOException, Refusal {
        request.object("pd", pds);
        return "ah=" + number(ahs, address(request));
    }

    private static InetAddress address(Request request) throws IOException, Refusal {
        String text = request.text("gid");
        if (!text.matches("[0-9a-fA-F.:]+")) {
            throw new Refusal(Refusal.EINVAL, text + " is no address");
        }
        return InetAddress.getByName(text);
    }

    /** The agent's letters as bits. */
    private static int access(String letters) throws Refusal {
        int access = Access.NONE;
        for (char letter : letters.toCharArray()) {
            access |= switch (letter) {
                case 'l' -> Access.LOCAL_WRITE;
                case 'w' -> Access.REMOTE_WRITE;
                case 'r' -> Access.REMOTE_READ;
                case 'a' -> Access.REMOTE_ATOMIC;
                case '-' -> Access.NONE;
                case 'b' -> throw new Refusal(Refusal.ENOSYS, "the verbs in Java have no memory windows");
                default -> throw new Refusal(Refusal.EINVAL, "no access flag " + letter);
            };
        }
        return access;
    }

    String toInit(Request request) throws IOException, Refusal {
        QueuePair qp = request.object("qp", qps);
        QpAttr attr = new QpAttr().state(QpState.INIT);
        if (qp.service() == Service.UD) {
            attr.qkey(request.word("qkey"));
        } else {
            attr.access(access(request.textOr("access", "-")));
        }
        qp.modify(attr);
        return "";
    }

    String toRtr(Request request) throws IOException, Refusal {
        QueuePair qp = request.object("qp", qps);
        QpAttr attr = new QpAttr().state(QpState.RTR);
        if (qp.service() != Service.UD) {
            attr.address(address(request)).remoteQpn(request.count("qpn")).rqPsn(request.count("psn"));
            attr.pathMtu(request.count("mtu"));
        }
        if (qp.service() == Service.RC) {
            attr.maxDestRdAtomic(request.countOr("rd_atomic", 4)).minRnrTimer(request.countOr("min_rnr", 12));
        }
        qp.modify(attr);
        return "";
    }

    String toRts(Request request) throws IOException, Refusal {
        QueuePair qp = request.object("qp", qps);
        QpAttr attr = new QpAttr().state(QpState.RTS).sqPsn(request.count("psn"));
        if (qp.service() == Service.RC) {
            attr.timeout(request.countOr("timeout", 12)).retryCount(request.countOr("retry", 7));
            attr.rnrRetry(request.countOr("rnr", 7)).maxRdAtomic(request.countOr("rd_atomic", 4));
            // The programs' default: IRN if the peer speaks it, which the kernel does not.
            attr.irn(true);
        }
        qp.modify(attr);
        return "";
    }

    String toError(Request request) throws IOException, Refusal {
        request.object("qp", qps).modify(new QpAttr().state(QpState.ERROR));
        return "";
    }

    String query(Request request) throws IOException, Refusal {
        return "state=" + request.object("qp", qps).query().state().ordinal();
    }

    String destroy(Request request) throws IOException, Refusal {
        if (request.has("qp")) {
            discard(qps, request, "qp");
        } else {
            discard(regions, request, "mr");
        }
        return "";
    }

    private static <T extends VerbsObject> void discard(List<T> objects, Request request, String key) throws IOException, Refusal {
        request.object(key, objects).close();
        objects.set(request.count(key), null);
    }

    /** Closes all objects, in the reverse order. */
    @Override
    public void close() throws VerbsException {
        while (!ends.isEmpty()) {
            ends.pop().come();
        }
    }
}
