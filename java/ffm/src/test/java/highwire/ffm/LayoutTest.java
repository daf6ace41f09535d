package highwire.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import highwire.verbs.CompletionStatus;
import highwire.verbs.Endpoint;
import highwire.verbs.Opcode;
import highwire.verbs.QpState;
import highwire.verbs.Service;
import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** The bytes of libibverbs' structures, as rdma-core's own build lists them. */
class LayoutTest {
    /** The field of each constant; constants that end in BYTES are sizes. */
    private static final String FIELDS = """
            CONTEXT_OPS ibv_context.ops
            OPS_POLL_CQ ibv_context_ops.poll_cq
            OPS_REQ_NOTIFY_CQ ibv_context_ops.req_notify_cq
            OPS_POST_SEND ibv_context_ops.post_send
            OPS_POST_RECV ibv_context_ops.post_recv
            MR_LKEY ibv_mr.lkey
            MR_RKEY ibv_mr.rkey
            QP_NUM ibv_qp.qp_num
            CHANNEL_FD ibv_comp_channel.fd
            PORT_BYTES ibv_port_attr
            PORT_STATE ibv_port_attr.state
            PORT_ACTIVE_MTU ibv_port_attr.active_mtu
            PORT_GID_TBL_LEN ibv_port_attr.gid_tbl_len
            GID_ENTRY_BYTES ibv_gid_entry
            GID_ENTRY_GID_TYPE ibv_gid_entry.gid_type
            INIT_BYTES ibv_qp_init_attr
            INIT_SEND_CQ ibv_qp_init_attr.send_cq
            INIT_RECV_CQ ibv_qp_init_attr.recv_cq
            INIT_CAP ibv_qp_init_attr.cap
            INIT_QP_TYPE ibv_qp_init_attr.qp_type
            ATTR_BYTES ibv_qp_attr
            ATTR_QP_STATE ibv_qp_attr.qp_state
            ATTR_PATH_MTU ibv_qp_attr.path_mtu
            ATTR_RQ_PSN ibv_qp_attr.rq_psn
            ATTR_SQ_PSN ibv_qp_attr.sq_psn
            ATTR_DEST_QP_NUM ibv_qp_attr.dest_qp_num
            ATTR_ACCESS ibv_qp_attr.qp_access_flags
            ATTR_AH ibv_qp_attr.ah_attr
            ATTR_PKEY_INDEX ibv_qp_attr.pkey_index
            ATTR_MAX_RD_ATOMIC ibv_qp_attr.max_rd_atomic
            ATTR_MAX_DEST_RD_ATOMIC ibv_qp_attr.max_dest_rd_atomic
            ATTR_MIN_RNR_TIMER ibv_qp_attr.min_rnr_timer
            ATTR_PORT_NUM ibv_qp_attr.port_num
            ATTR_TIMEOUT ibv_qp_attr.timeout
            ATTR_RETRY_CNT ibv_qp_attr.retry_cnt
            ATTR_RNR_RETRY ibv_qp_attr.rnr_retry
            AH_SGID_INDEX ibv_global_route.sgid_index
            AH_HOP_LIMIT ibv_global_route.hop_limit
            AH_IS_GLOBAL ibv_ah_attr.is_global
            AH_PORT_NUM ibv_ah_attr.port_num
            SEND_BYTES ibv_send_wr
            SEND_SG_LIST ibv_send_wr.sg_list
            SEND_NUM_SGE ibv_send_wr.num_sge
            SEND_OPCODE ibv_send_wr.opcode
            SEND_FLAGS ibv_send_wr.send_flags
            SEND_IMM ibv_send_wr.imm_data
            SEND_REMOTE_ADDR ibv_send_wr.remote_addr
            SEND_RKEY ibv_send_wr.rkey
            SEND_COMPARE_ADD ibv_send_wr.compare_add
            SEND_SWAP ibv_send_wr.swap
            SEND_ATOMIC_RKEY ibv_send_wr.swap
            RECV_BYTES ibv_recv_wr
            RECV_SG_LIST ibv_recv_wr.sg_list
            RECV_NUM_SGE ibv_recv_wr.num_sge
            SGE_BYTES ibv_sge
            SGE_LENGTH ibv_sge.length
            SGE_LKEY ibv_sge.lkey
            WC_BYTES ibv_wc
            WC_STATUS ibv_wc.status
            WC_OPCODE ibv_wc.opcode
            WC_BYTE_LEN ibv_wc.byte_len
            WC_IMM ibv_wc.imm_data
            WC_QP_NUM ibv_wc.qp_num
            WC_SRC_QP ibv_wc.src_qp
            WC_FLAGS ibv_wc.wc_flags
            """;

    /** Offsets of fields, the first if a name comes twice, and sizes of structures. */
    private static Map<String, Long> listed() throws IOException {
        Map<String, Long> listed = new HashMap<>();
        String structure = "";
        for (String line : Files.readAllLines(Path.of(System.getProperty("highwire.abi", "../../vectors/abi"), "layouts-v65.txt"))) {
            String[] words = line.strip().split(" ");
            if (line.startsWith("  ")) {
                listed.putIfAbsent(structure + "." + words[2], Long.parseLong(words[0]));
            } else if (!line.startsWith("#")) {
                structure = words[0];
                listed.put(structure, Long.parseLong(words[1]));
            }
        }
        return listed;
    }

    @Test
    void fieldsLieWhereTheLibraryHasThem() throws Exception {
        Map<String, Long> listed = listed();
        Map<String, String> fields = new HashMap<>();
        FIELDS.lines().map(line -> line.split(" ")).forEach(words -> fields.put(words[0], words[1]));
        for (Field constant : Layout.class.getDeclaredFields()) {
            String field = fields.remove(constant.getName());
            assertTrue(field != null, constant.getName() + " is compared with nothing");
            // The key of an atomic is the one behind its last operand; the name comes twice in the union.
            long expected = constant.getName().equals("SEND_ATOMIC_RKEY") ? listed.get(field) + 8 : listed.get(field);
            assertEquals(expected, constant.getLong(null), constant.getName());
        }
        assertTrue(fields.isEmpty(), fields + " are no constants");
    }

    @Test
    void numbersAreThoseOfTheLibrary() {
        assertEquals(2, Service.RC.number());
        assertEquals(3, Service.UC.number());
        assertEquals(6, Opcode.FETCH_ADD.number());
        assertEquals(3, QpState.RTS.ordinal());
        assertEquals(12, CompletionStatus.RETRY_EXCEEDED.ordinal());
    }

    @Test
    void anIntroductionIsThatOfThePingPongInC() throws IOException {
        Endpoint endpoint = Endpoint.parse("00abcd-123456@127.83.20.7");
        byte[] said = RcPingpong.hello(endpoint);
        assertEquals("0000:00abcd:123456:00000000000000000000ffff7f531407\0", new String(said));
        assertEquals(endpoint, RcPingpong.parse(said));
        for (String wrong : new String[] {"", "0000:00abcd", "0000:00abcd:12345x:00000000000000000000ffff7f531407", "0000:00abcd:123456:7f531407"}) {
            assertThrows(IOException.class, () -> RcPingpong.parse(wrong.getBytes()), wrong);
        }
    }
}
