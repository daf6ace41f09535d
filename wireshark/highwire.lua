-- Wireshark's view of what Highwire adds to RoCEv2: IRN's packets on UDP port 4791, and the negotiation on port 4794.
--
--   tshark -X lua_script:wireshark/highwire.lua -r capture.pcap
--   cp wireshark/highwire.lua ~/.local/lib/wireshark/plugins/
--
-- Packets with the standard's opcodes remain Wireshark's own. The formats are those of docs/wire.md; a line of the Info column
-- reads as `highwire pcap` prints it.

local IRN_VERSION = 2
local ROCE_PORT, NEGOTIATION_PORT = 4791, 4794
local BTH_LEN, ICRC_LEN = 12, 4

-- Opcode: name, headers behind the BTH, whether payload may follow.
local OPCODES = {
    [0xD0] = { "IRN_SEND", { "irn" }, true },
    [0xD1] = { "IRN_SEND_IMM", { "irn", "imm" }, true },
    [0xD2] = { "IRN_SEND_INV", { "irn", "invalidate" }, true },
    [0xD3] = { "IRN_WRITE", { "irn", "reth" }, true },
    [0xD4] = { "IRN_WRITE_IMM", { "irn", "reth", "imm" }, true },
    [0xD5] = { "IRN_READ", { "irn", "reth" }, false },
    [0xD6] = { "IRN_COMPARE_SWAP", { "irn", "atomic" }, false },
    [0xD7] = { "IRN_FETCH_ADD", { "irn", "atomic" }, false },
    [0xD8] = { "IRN_READ_RESPONSE", { "irn", "aeth" }, true },
    [0xD9] = { "IRN_ATOMIC_RESPONSE", { "irn", "aeth", "original" }, false },
    [0xDA] = { "IRN_ACK", { "aeth" }, false },
    [0xDB] = { "IRN_NACK", { "aeth", "sack" }, false },
    [0xDC] = { "IRN_READ_ACK", {}, false },
    [0xDD] = { "IRN_READ_NACK", { "sack" }, false },
    [0xDE] = { "IRN_SEND_ACK", { "irn", "aeth", "cumulative" }, true },
    [0xDF] = { "IRN_WRITE_ACK", { "irn", "reth", "aeth", "cumulative" }, true },
}

local NAMES = {}
for opcode, row in pairs(OPCODES) do
    NAMES[opcode] = row[1]
end

-- IBTA tables 45 and 52: what a code of five bits stands for, RNR delays in units of 10 µs.
local CREDITS = {
    [0] = 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768,
}
local RNR_DELAYS = {
    [0] = 65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
}
local NAKS = {
    [0] = "psn-sequence", "invalid-request", "remote-access", "remote-operational", "invalid-rd",
}

local roce = Proto("highwire", "Highwire IRN")
local f = {
    text = ProtoField.string("highwire.text", "Packet"),
    opcode = ProtoField.uint8("highwire.opcode", "Opcode", base.HEX, NAMES),
    solicited = ProtoField.bool("highwire.solicited", "Solicited event", 8, nil, 0x80),
    mig_req = ProtoField.bool("highwire.migreq", "Migration request", 8, nil, 0x40),
    pad = ProtoField.uint8("highwire.pad", "Pad count", base.DEC, nil, 0x30),
    pkey = ProtoField.uint16("highwire.pkey", "Partition key", base.HEX),
    fecn = ProtoField.bool("highwire.fecn", "Congestion ahead (FECN)", 8, nil, 0x80),
    becn = ProtoField.bool("highwire.becn", "Congestion behind (BECN)", 8, nil, 0x40),
    qpn = ProtoField.uint24("highwire.qpn", "Destination queue pair", base.HEX),
    ack_request = ProtoField.bool("highwire.ackreq", "Acknowledgement wanted", 8, nil, 0x80),
    psn = ProtoField.uint24("highwire.psn", "PSN", base.HEX),
    version = ProtoField.uint8("highwire.irn.version", "IRN version", base.DEC, nil, 0xF0),
    last = ProtoField.bool("highwire.irn.last", "Last packet of its message", 8, nil, 0x01),
    again = ProtoField.bool("highwire.irn.again", "Retransmitted", 8, nil, 0x02),
    wqe = ProtoField.uint24("highwire.irn.wqe", "WQE sequence number"),
    offset = ProtoField.uint24("highwire.irn.offset", "Packet offset"),
    imm = ProtoField.uint32("highwire.imm", "Immediate data", base.HEX),
    invalidate = ProtoField.uint32("highwire.invalidate", "Key to invalidate", base.HEX),
    va = ProtoField.uint64("highwire.va", "Virtual address", base.HEX),
    rkey = ProtoField.uint32("highwire.rkey", "Remote key", base.HEX),
    dmalen = ProtoField.uint32("highwire.dmalen", "Length of the message"),
    swap = ProtoField.uint64("highwire.swap", "Swap or add", base.HEX),
    compare = ProtoField.uint64("highwire.compare", "Compare", base.HEX),
    original = ProtoField.uint64("highwire.original", "Original value", base.HEX),
    syndrome = ProtoField.uint8("highwire.syndrome", "Syndrome", base.HEX),
    msn = ProtoField.uint24("highwire.msn", "MSN"),
    sack_psn = ProtoField.uint24("highwire.sack.psn", "Last packet of a run that arrived", base.HEX),
    sack_count = ProtoField.uint8("highwire.sack.count", "Packets in the run"),
    cumulative = ProtoField.uint24("highwire.cumulative", "Next PSN expected", base.HEX),
    payload = ProtoField.bytes("highwire.payload", "Payload"),
    icrc = ProtoField.uint32("highwire.icrc", "Invariant CRC", base.HEX),
}
roce.fields = f
local malformed = ProtoExpert.new("highwire.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR)
roce.experts = { malformed }

-- A range's 64 bits as Rust prints them with {:#x}.
local function hex64(range)
    local digits = string.lower(range:bytes():tohex()):gsub("^0+", "")
    return "0x" .. (digits == "" and "0" or digits)
end

-- A number of microseconds as Rust prints a duration.
local function duration(us)
    local unit, value = "\194\181s", us
    if us >= 1000000 then
        unit, value = "s", us / 1000000
    elseif us >= 1000 then
        unit, value = "ms", us / 1000
    end
    return string.format("%.10g%s", value, unit)
end

-- Each function takes a header off the packet: adds it to the tree, and returns its length, its text, and any
-- error.
local headers = {}

function headers.irn(range, tree)
    local head = tree:add(roce, range(0, 8), "IrnETH")
    head:add(f.version, range(0, 1))
    head:add(f.last, range(0, 1))
    head:add(f.again, range(0, 1))
    head:add(f.wqe, range(1, 3))
    head:add(f.offset, range(5, 3))
    local text = string.format("wqe %d offset %d", range(1, 3):uint(), range(5, 3):uint())
    if range(0, 1):bitfield(7, 1) == 1 then
        text = text .. " last"
    end
    if range(0, 1):bitfield(6, 1) == 1 then
        text = text .. " again"
    end
    if range(0, 1):bitfield(0, 4) ~= IRN_VERSION then
        return 8, text, "IRN version " .. range(0, 1):bitfield(0, 4)
    end
    if range(0, 1):bitfield(4, 2) ~= 0 or range(4, 1):uint() ~= 0 then
        return 8, text, "reserved bits of the IrnETH are set"
    end
    return 8, text
end

function headers.imm(range, tree)
    tree:add(f.imm, range(0, 4))
    return 4, string.format("imm 0x%08x", range(0, 4):uint())
end

function headers.invalidate(range, tree)
    tree:add(f.invalidate, range(0, 4))
    return 4, string.format("invalidate 0x%08x", range(0, 4):uint())
end

function headers.reth(range, tree)
    local head = tree:add(roce, range(0, 16), "RETH")
    head:add(f.va, range(0, 8))
    head:add(f.rkey, range(8, 4))
    head:add(f.dmalen, range(12, 4))
    local key, length = range(8, 4):uint(), range(12, 4):uint()
    return 16, string.format("va %s rkey 0x%08x dmalen %d", hex64(range(0, 8)), key, length)
end

function headers.atomic(range, tree)
    local head = tree:add(roce, range(0, 28), "AtomicETH")
    head:add(f.va, range(0, 8))
    head:add(f.rkey, range(8, 4))
    head:add(f.swap, range(12, 8))
    head:add(f.compare, range(20, 8))
    local first = string.format("va %s rkey 0x%08x", hex64(range(0, 8)), range(8, 4):uint())
    return 28, string.format("%s swap-or-add %s compare %s", first, hex64(range(12, 8)), hex64(range(20, 8)))
end

function headers.aeth(range, tree)
    local head = tree:add(roce, range(0, 4), "AETH")
    head:add(f.syndrome, range(0, 1))
    head:add(f.msn, range(1, 3))
    local kind, code = range(0, 1):bitfield(0, 3), range(0, 1):bitfield(3, 5)
    local text, wrong
    if kind == 0 then
        text = CREDITS[code] and "ack credits " .. CREDITS[code] or "ack"
    elseif kind == 1 then
        text = "rnr " .. duration(RNR_DELAYS[code] * 10)
    elseif kind == 3 and NAKS[code] then
        text = "nak " .. NAKS[code]
    else
        text, wrong = "syndrome", "unknown syndrome"
    end
    return 4, string.format("%s msn %d", text, range(1, 3):uint()), wrong
end

function headers.original(range, tree)
    tree:add(f.original, range(0, 8))
    return 8, "original " .. hex64(range(0, 8))
end

function headers.sack(range, tree)
    local head = tree:add(roce, range(0, 4), "SackETH")
    head:add(f.sack_psn, range(0, 3))
    head:add(f.sack_count, range(3, 1))
    local text, count = string.format("sack 0x%06x", range(0, 3):uint()), range(3, 1):uint()
    if count > 1 then
        text = string.format("%s and %d before", text, count - 1)
    end
    return 4, text, count == 0 and "a run of no packets" or nil
end

function headers.cumulative(range, tree)
    local head = tree:add(roce, range(0, 4), "CumulativeETH")
    head:add(f.cumulative, range(0, 3))
    local wrong = range(3, 1):uint() ~= 0 and "reserved bits of the CumulativeETH are set" or nil
    return 4, string.format("up to 0x%06x", range(0, 3):uint()), wrong
end

local LENGTHS = {
    irn = 8, imm = 4, invalidate = 4, reth = 16, atomic = 28, aeth = 4, original = 8, sack = 4, cumulative = 4,
}

local function add_bth(range, tree)
    local head = tree:add(roce, range, "BTH")
    head:add(f.opcode, range(0, 1))
    head:add(f.solicited, range(1, 1))
    head:add(f.mig_req, range(1, 1))
    head:add(f.pad, range(1, 1))
    head:add(f.pkey, range(2, 2))
    head:add(f.fecn, range(4, 1))
    head:add(f.becn, range(4, 1))
    head:add(f.qpn, range(5, 3))
    head:add(f.ack_request, range(8, 1))
    head:add(f.psn, range(9, 3))
    local text = string.format("qpn 0x%06x psn 0x%06x", range(5, 3):uint(), range(9, 3):uint())
    local flags = { { 1, 0, " se" }, { 1, 1, " migreq" }, { 4, 0, " fecn" }, { 4, 1, " becn" }, { 8, 0, " ackreq" } }
    for _, flag in ipairs(flags) do
        if range(flag[1], 1):bitfield(flag[2], 1) == 1 then
            text = text .. flag[3]
        end
    end
    return text
end

local standard = DissectorTable.get("udp.port"):get_dissector(ROCE_PORT)

function roce.dissector(buffer, pinfo, root)
    local row = buffer:len() >= BTH_LEN and OPCODES[buffer(0, 1):uint()]
    if not row then
        return standard and standard:call(buffer, pinfo, root) or 0
    end
    local name, names, has_payload = row[1], row[2], row[3]
    pinfo.cols.protocol = "IRN"
    local tree = root:add(roce, buffer())
    local text = name .. " " .. add_bth(buffer(0, BTH_LEN), tree)
    local at, wrong = BTH_LEN, nil
    for _, header in ipairs(names) do
        if buffer:len() < at + LENGTHS[header] + ICRC_LEN then
            wrong = wrong or "the packet ends within its headers"
            break
        end
        local length, part, error = headers[header](buffer(at, LENGTHS[header]), tree)
        at, text, wrong = at + length, text .. " " .. part, wrong or error
    end
    local rest = buffer:len() - ICRC_LEN - at - buffer(1, 1):bitfield(2, 2)
    if rest < 0 then
        wrong = wrong or "the packet is shorter than its padding"
    elseif has_payload then
        text = text .. " len " .. rest
        if rest > 0 then
            tree:add(f.payload, buffer(at, rest))
        end
    elseif rest > 0 then
        wrong = wrong or "payload where there is none"
    end
    if buffer:len() >= at + ICRC_LEN then
        -- It is the one field in little-endian order.
        tree:add_le(f.icrc, buffer(buffer:len() - ICRC_LEN, ICRC_LEN))
    end
    if wrong then
        text = text .. " (malformed: " .. wrong .. ")"
        tree:add_proto_expert_info(malformed, wrong)
    end
    tree:add(f.text, text):set_generated()
    pinfo.cols.info = text
    return buffer:len()
end

local KINDS = { "hello", "accept", "refuse", "not yet" }
local negotiation = Proto("highwire_negotiation", "Highwire negotiation")
local n = {
    version = ProtoField.uint16("highwire_negotiation.version", "Version"),
    kind = ProtoField.uint8("highwire_negotiation.kind", "Kind", base.DEC, KINDS),
    irn_version = ProtoField.uint8("highwire_negotiation.irn_version", "IRN version of the asker"),
    nonce = ProtoField.uint64("highwire_negotiation.nonce", "Nonce", base.HEX),
    gid = ProtoField.ipv6("highwire_negotiation.gid", "The sender's GID"),
    from = ProtoField.uint32("highwire_negotiation.from", "The sender's queue pair", base.HEX),
    to = ProtoField.uint32("highwire_negotiation.to", "The receiver's queue pair", base.HEX),
    sq_psn = ProtoField.uint32("highwire_negotiation.sq_psn", "First PSN of the sender's requester", base.HEX),
    rq_psn = ProtoField.uint32("highwire_negotiation.rq_psn", "First PSN that the sender expects", base.HEX),
    features = ProtoField.uint32("highwire_negotiation.features", "Features", base.HEX),
}
negotiation.fields = n

function negotiation.dissector(buffer, pinfo, root)
    if buffer:len() ~= 64 or buffer(0, 4):string() ~= "HWNG" then
        return 0
    end
    pinfo.cols.protocol = "HWNG"
    local tree = root:add(negotiation, buffer())
    tree:add(n.version, buffer(4, 2))
    tree:add(n.kind, buffer(6, 1))
    tree:add(n.irn_version, buffer(7, 1))
    tree:add(n.nonce, buffer(8, 8))
    tree:add(n.gid, buffer(16, 16))
    tree:add(n.from, buffer(32, 4))
    tree:add(n.to, buffer(36, 4))
    tree:add(n.sq_psn, buffer(40, 4))
    tree:add(n.rq_psn, buffer(44, 4))
    tree:add(n.features, buffer(48, 4))
    local kind = KINDS[buffer(6, 1):uint()] or "kind " .. buffer(6, 1):uint()
    local numbers = string.format("from 0x%06x to 0x%06x", buffer(32, 4):uint(), buffer(36, 4):uint())
    pinfo.cols.info = string.format("%s irn %d %s", kind, buffer(7, 1):uint(), numbers)
    return buffer:len()
end

DissectorTable.get("udp.port"):add(ROCE_PORT, roce)
DissectorTable.get("udp.port"):add(NEGOTIATION_PORT, negotiation)
