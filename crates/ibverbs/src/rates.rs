//! Static rates as multiples of 2.5 Gb/s and in Mb/s (IBTA §9.11).

use crate::abi::c_int;
use crate::boundary::c_api;

/// The rate's number, its multiple of 2.5 Gb/s where there is one, and its Mb/s.
const RATES: [(c_int, Option<c_int>, c_int); 24] = [
    (2, Some(1), 2_500),
    (5, Some(2), 5_000),
    (3, Some(4), 10_000),
    (6, Some(8), 20_000),
    (4, Some(12), 30_000),
    (7, Some(16), 40_000),
    (8, Some(24), 60_000),
    (9, Some(32), 80_000),
    (10, Some(48), 120_000),
    (11, None, 14_062),
    (12, None, 56_250),
    (13, None, 112_500),
    (14, None, 168_750),
    (15, None, 25_781),
    (16, None, 103_125),
    (17, None, 206_250),
    (18, None, 309_375),
    (19, Some(11), 28_125),
    (20, Some(20), 53_125),
    (21, Some(160), 425_000),
    (22, Some(240), 637_500),
    (23, Some(320), 850_000),
    (24, Some(480), 1_275_000),
    (25, None, 1_700_000),
];

/// As fast as the port can.
const MAX: c_int = 0;

c_api! {
    fn ibv_rate_to_mult(rate: c_int) -> c_int {
        RATES.iter().find(|(number, ..)| *number == rate).and_then(|(_, multiple, _)| *multiple).unwrap_or(-1)
    }

    fn mult_to_ibv_rate(multiple: c_int) -> c_int {
        RATES.iter().find(|(_, known, _)| *known == Some(multiple)).map_or(MAX, |(number, ..)| *number)
    }

    fn ibv_rate_to_mbps(rate: c_int) -> c_int {
        RATES.iter().find(|(number, ..)| *number == rate).map_or(-1, |(.., mbps)| *mbps)
    }

    fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
        RATES.iter().find(|(.., known)| *known == mbps).map_or(MAX, |(number, ..)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_comes_back() {
        for (rate, multiple, mbps) in RATES {
            // SAFETY: functions of numbers.
            unsafe {
                assert_eq!((ibv_rate_to_mbps(rate), mbps_to_ibv_rate(mbps)), (mbps, rate));
                assert_eq!(ibv_rate_to_mult(rate), multiple.unwrap_or(-1));
                assert_eq!(multiple.map_or(rate, |multiple| mult_to_ibv_rate(multiple)), rate);
            }
        }
        // SAFETY: as above.
        unsafe {
            assert_eq!((ibv_rate_to_mult(0), ibv_rate_to_mbps(99), mbps_to_ibv_rate(1)), (-1, -1, MAX))
        };
    }
}
