//! RoCEv2 bytes and their meaning: every header, opcodes, ICRC, PSN arithmetic, pcap.
