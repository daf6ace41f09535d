package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** The bytes that both languages rely on. */
class LayoutTest {
    private static Map<String, String> vectors(String file) throws IOException {
        Path path = Path.of(System.getProperty("highwire.vectors", "../../vectors/uapi"), file);
        return Files.readAllLines(path).stream()
                .map(line -> line.split(" ", 2))
                .collect(Collectors.toMap(words -> words[0], words -> words[1], (a, b) -> a, TreeMap::new));
    }

    private static String hex(MemorySegment memory, long bytes) {
        StringBuilder text = new StringBuilder();
        for (long at = 0; at < bytes; at += 8) {
            text.append(at == 0 ? "" : " ").append(String.format("%016x", Long.reverseBytes(Mapped.getLong(memory, at))));
        }
        return text.toString();
    }

    @Test
    void constantsAreThoseOfTheDescription() throws IOException {
        Map<String, String> ours = new TreeMap<>();
        ours.put("door.version", "" + Layout.DOOR_VERSION);
        ours.put("ring.version", "" + Layout.RING_VERSION);
        ours.put("ring.tail", "" + Layout.RING_TAIL_OFFSET);
        ours.put("ring.overrun", "" + Layout.RING_OVERRUN_OFFSET);
        ours.put("ring.in_use", "" + Layout.RING_IN_USE_OFFSET);
        ours.put("ring.completed", "" + Layout.RING_COMPLETED_OFFSET);
        ours.put("ring.head", "" + Layout.RING_HEAD_OFFSET);
        ours.put("ring.held", "" + Layout.RING_HELD_OFFSET);
        ours.put("ring.arm", "" + Layout.RING_ARM_OFFSET);
        ours.put("ring.bell", "" + Layout.RING_BELL_OFFSET);
        ours.put("ring.wanted", "" + Layout.RING_WANTED_OFFSET);
        ours.put("ring.header_bytes", "" + Layout.RING_HEADER_BYTES);
        ours.put("cqe.bytes", "" + Layout.CQE_BYTES);
        ours.put("board.summary", "" + Layout.BOARD_SUMMARY_OFFSET);
        ours.put("board.sleeping", "" + Layout.BOARD_SLEEPING_OFFSET);
        ours.put("board.words", "" + Layout.BOARD_WORDS_OFFSET);
        assertEquals(vectors("layout.txt"), ours);
    }

    private static void check(SendRequest request, String name) throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment image = arena.allocate(request.imageBytes(), 8);
            request.serialise(image, 0);
            assertEquals(vectors("rings.txt").get(name), hex(image, request.imageBytes()));
        }
    }

    @Test
    void sendRequestsHaveTheseBytes() throws IOException {
        long id = 0x1122334455667788L;
        SendRequest write = new SendRequest(Opcode.WRITE_WITH_IMM).wrId(id).imm(0xA1A2A3A4)
                .remote(0xB1B2B3B4B5B6B7B8L, 0xC1C2C3C4);
        write.sges.add(new Sge(0xD1, 0xD2, 0xD3));
        check(write, "send_write_imm");
        byte[] gid = new byte[16];
        for (byte i = 0; i < 16; i++) {
            gid[i] = i;
        }
        SendRequest datagram = new SendRequest(Opcode.SEND).wrId(id).inline("sixteen bytes...".getBytes())
                .to(InetAddress.getByAddress(gid), 0x010203, 0x11121314);
        check(datagram, "send_datagram_inline");
        SendRequest swap = new SendRequest(Opcode.COMPARE_SWAP).wrId(id).remote(0xB1B2B3B4B5B6B7B8L, 0xC1C2C3C4)
                .compareSwap(2, 3);
        swap.sges.add(new Sge(0xD1, 8, 0xD3));
        check(swap, "send_compare_swap");
    }

    @Test
    void receivesAndCompletionsHaveTheseBytes() throws IOException {
        ReceiveRequest receive = new ReceiveRequest().wrId(0x99);
        receive.sges.add(new Sge(1, 2, 3));
        receive.sges.add(new Sge(4, 5, 6));
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment image = arena.allocate(64, 8);
            receive.serialise(image);
            assertEquals(vectors("rings.txt").get("receive"), hex(image, receive.imageBytes()));
            String[] words = vectors("rings.txt").get("cqe").split(" ");
            for (int i = 0; i < words.length; i++) {
                Mapped.putLong(image, 8L * i, Long.reverseBytes(Long.parseUnsignedLong(words[i], 16)));
            }
            Completion completion = new Completion();
            completion.read(image, 0);
            assertEquals(1, completion.wrId());
            assertEquals(CompletionStatus.REMOTE_ACCESS, completion.status());
            assertEquals(128, completion.opcode());
            assertEquals(3, completion.flags);
            assertEquals(3, completion.byteLen());
            assertEquals(4, completion.imm());
            assertEquals(5, completion.qpn());
            assertEquals(6, completion.sourceQpn());
        }
    }

    @Test
    void anEndpointIsWhatItSays() {
        String text = "00abcd-123456@127.83.20.7";
        assertEquals(text, Endpoint.parse(text).toString());
        assertEquals(0xFFFFFF, Endpoint.parse("ffffff-000000@fe80::1").qpn());
    }
}
