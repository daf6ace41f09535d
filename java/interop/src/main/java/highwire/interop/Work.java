package highwire.interop;

import highwire.verbs.Completion;
import highwire.verbs.CompletionQueue;
import highwire.verbs.MemoryRegion;
import highwire.verbs.Opcode;
import highwire.verbs.PollCq;
import highwire.verbs.PostRecv;
import highwire.verbs.PostSend;
import highwire.verbs.QueuePair;
import highwire.verbs.ReceiveRequest;
import highwire.verbs.SendRequest;
import highwire.verbs.Service;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** Posting work and polling completions. */
final class Work {
    private Work() {}

    /** One element of {@code sge=MR:OFFSET:LENGTH,…}. */
    private record Piece(MemoryRegion region, int offset, int length) {
        byte[] bytes() {
            return region.segment().asSlice(offset, length).toArray(ValueLayout.JAVA_BYTE);
        }
    }

    private static List<Piece> pieces(Request request, Objects objects) throws Refusal {
        List<Piece> pieces = new ArrayList<>();
        String list = request.textOr("sge", "");
        for (String text : list.isEmpty() ? new String[0] : list.split(",")) {
            String[] numbers = text.split(":");
            try {
                MemoryRegion region = Request.object("mr", Integer.parseInt(numbers[0]), objects.regions);
                pieces.add(new Piece(region, Integer.parseInt(numbers[1]), Integer.parseInt(numbers[2])));
            } catch (NumberFormatException | IndexOutOfBoundsException e) {
                throw new Refusal(Refusal.EINVAL, "sge=" + list);
            }
        }
        return pieces;
    }

    private static Opcode opcode(String name) throws Refusal {
        return switch (name) {
            case "send" -> Opcode.SEND;
            case "send_imm" -> Opcode.SEND_WITH_IMM;
            case "write" -> Opcode.WRITE;
            case "write_imm" -> Opcode.WRITE_WITH_IMM;
            case "read" -> Opcode.READ;
            case "cas" -> Opcode.COMPARE_SWAP;
            case "fadd" -> Opcode.FETCH_ADD;
            case "send_inv", "local_inv", "bind" -> throw new Refusal(Refusal.ENOSYS, "the verbs in Java have no " + name);
            default -> throw new Refusal(Refusal.EINVAL, "no operation " + name);
        };
    }

    static String send(Request request, Objects objects) throws Refusal {
        QueuePair qp = request.object("qp", objects.qps);
        Opcode opcode = opcode(request.text("op"));
        String flags = request.textOr("flags", "s");
        SendRequest described = new SendRequest(opcode)
                .signaled(flags.contains("s"))
                .solicited(flags.contains("e"))
                .fence(flags.contains("f"));
        List<Piece> pieces = pieces(request, objects);
        if (flags.contains("i")) {
            described.inline(gather(pieces));
        } else {
            for (Piece piece : pieces) {
                described.sge(piece.region, piece.offset, piece.length);
            }
        }
        if (opcode != Opcode.SEND && opcode != Opcode.SEND_WITH_IMM) {
            described.remote(request.number("raddr"), request.word("rkey"));
        }
        switch (opcode) {
            case SEND_WITH_IMM, WRITE_WITH_IMM -> described.imm(request.word("imm"));
            case COMPARE_SWAP -> described.compareSwap(request.number("compare"), request.number("swap"));
            case FETCH_ADD -> described.add(request.number("add"));
            default -> { }
        }
        if (qp.service() == Service.UD) {
            described.to(request.object("ah", objects.ahs), request.count("qpn"), request.word("qkey"));
        }
        // One call, executed again with another number each time.
        PostSend call = qp.postSend(described);
        long first = request.number("wr");
        int count = request.countOr("count", 1);
        for (int i = 0; i < count; i++) {
            call.request(0).wrId(first + i);
            call.exec();
        }
        return "";
    }

    private static byte[] gather(List<Piece> pieces) {
        int length = 0;
        for (Piece piece : pieces) {
            length += piece.length;
        }
        MemorySegment all = MemorySegment.ofArray(new byte[length]);
        int at = 0;
        for (Piece piece : pieces) {
            MemorySegment.copy(piece.bytes(), 0, all, ValueLayout.JAVA_BYTE, at, piece.length);
            at += piece.length;
        }
        return all.toArray(ValueLayout.JAVA_BYTE);
    }

    static String receive(Request request, Objects objects) throws Refusal {
        ReceiveRequest described = new ReceiveRequest();
        for (Piece piece : pieces(request, objects)) {
            described.sge(piece.region, piece.offset, piece.length);
        }
        PostRecv call = request.has("srq")
                ? request.object("srq", objects.srqs).postRecv(described)
                : request.object("qp", objects.qps).postRecv(described);
        long first = request.number("wr");
        int count = request.countOr("count", 1);
        for (int i = 0; i < count; i++) {
            call.wrId(first + i).exec();
        }
        return "";
    }

    static String poll(Request request, Objects objects) throws IOException, InterruptedException, Refusal {
        CompletionQueue cq = request.object("cq", objects.cqs);
        int wanted = request.countOr("count", 1);
        long deadline = System.nanoTime() + Duration.ofMillis(request.countOr("ms", 2000)).toNanos();
        StringBuilder texts = new StringBuilder();
        int found = 0;
        PollCq poll = cq.pollCall(1);
        while (found < wanted) {
            if (poll.exec().result() == 1) {
                found++;
                texts.append(" wc=").append(text(poll.completion(0)));
            } else {
                // Sleeps: this machine emulates the guest's processor.
                long left = deadline - System.nanoTime();
                if (left <= 0 || !cq.await(Duration.ofNanos(left))) {
                    break;
                }
            }
        }
        return "n=" + found + texts;
    }

    /** The completion as the agent prints it, with the numbers of {@code enum ibv_wc_*}. */
    private static String text(Completion completion) {
        int flags = (completion.hasGrh() ? 1 : 0) | (completion.hasImm() ? 2 : 0);
        return String.format("%s,%d,%d,%d,%d,%d,0x%x,%d", Long.toUnsignedString(completion.wrId()), completion.status().ordinal(),
                completion.opcode(), completion.byteLen(), completion.qpn(), completion.sourceQpn(), completion.imm(), flags);
    }
}
