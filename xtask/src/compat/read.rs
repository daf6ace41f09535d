//! The figures in programs' output, in one unit: microseconds, or gigabits per second.

/// The figure that counts in a program's output: microseconds of half a round trip, or gigabits per second.
pub(super) type Read = fn(&str) -> Option<f64>;

/// The numbers of the last line that is nothing but numbers.
fn last_row(text: &str) -> Option<Vec<f64>> {
    text.lines().rev().find_map(|line| {
        let numbers: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        numbers.filter(|numbers| numbers.len() >= 4)
    })
}

/// Size, iterations, lowest, highest, typical.
pub(super) fn perftest_latency(text: &str) -> Option<f64> {
    last_row(text)?.get(4).copied()
}

/// Size, iterations, peak and average in MiB/s.
pub(super) fn perftest_bandwidth(text: &str) -> Option<f64> {
    last_row(text)?.get(3).map(|mib| mib * 8.0 * f64::from(1 << 20) / 1e9)
}

fn ucx_final(text: &str) -> Option<Vec<f64>> {
    let line = text.lines().find_map(|line| line.strip_prefix("Final:"))?;
    Some(line.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

/// Iterations, then the 50th percentile in microseconds of half a round trip.
pub(super) fn ucx_latency(text: &str) -> Option<f64> {
    ucx_final(text)?.get(1).copied()
}

/// …, then average and overall bandwidth in MiB/s, and two message rates.
pub(super) fn ucx_bandwidth(text: &str) -> Option<f64> {
    ucx_final(text)?.iter().rev().nth(2).map(|mib| mib * 8.0 * f64::from(1 << 20) / 1e9)
}

/// `latency  =  20.7 us`: half a round trip.
pub(super) fn qperf_latency(text: &str) -> Option<f64> {
    let (number, unit) = qperf_value(text)?;
    let scale = match unit.as_str() {
        "ns" => 1e-3,
        "us" => 1.0,
        "ms" => 1e3,
        _ => return None,
    };
    Some(number * scale)
}

/// `bw  =  834 MB/sec`, with 10^6 bytes.
pub(super) fn qperf_bandwidth(text: &str) -> Option<f64> {
    let (number, unit) = qperf_value(text)?;
    let scale = match unit.as_str() {
        "KB/sec" => 8e-6,
        "MB/sec" => 8e-3,
        "GB/sec" => 8.0,
        _ => return None,
    };
    Some(number * scale)
}

fn qperf_value(text: &str) -> Option<(f64, String)> {
    let value = text.lines().find_map(|line| line.split_once('='))?.1;
    let mut words = value.split_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.to_string()))
}

/// The last line's columns: name, bytes, transfers, iterations, total, time, Gb/sec, microseconds per transfer.
fn rstream_columns(text: &str) -> Option<Vec<&str>> {
    let line = text.lines().rev().find(|line| line.split_whitespace().count() == 8)?;
    Some(line.split_whitespace().collect())
}

pub(super) fn rstream_latency(text: &str) -> Option<f64> {
    rstream_columns(text)?[7].parse().ok()
}

pub(super) fn rstream_bandwidth(text: &str) -> Option<f64> {
    rstream_columns(text)?[6].parse().ok()
}

/// `ibv_rc_pingpong`: `1000 iters in 0.01 seconds = 10.00 usec/iter` is a whole round trip.
pub(super) fn pingpong_latency(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains(" iters in "))?;
    let time = line.split('=').nth(1)?.trim().strip_suffix(" usec/iter")?;
    Some(time.parse::<f64>().ok()? / 2.0)
}

/// `fi_pingpong`: bytes, messages sent and acknowledged, total, time, MB/s, microseconds per transfer, transfers.
pub(super) fn fi_pingpong_latency(text: &str) -> Option<f64> {
    let mut rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.rfind(|row| row.len() == 8 && row[0].starts_with(|c: char| c.is_ascii_digit()))?;
    row[6].parse().ok()
}

/// The repository's token ring prints the time of a hop.
pub(super) fn ring_latency(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("ring: "))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_read_in_one_unit() {
        let lat = " #bytes #iterations t_min[usec]\n 8       20000          4.93           10005.78      5.25     \t       24.25\n---\n";
        assert_eq!(perftest_latency(lat), Some(5.25));
        let bw = " #bytes     #iterations    BW peak[MB/sec]\n 65536      5000             1300.00            1250.00\t\t   0.020\n---\n";
        assert_eq!(perftest_bandwidth(bw).map(|gb| (gb * 100.0).round()), Some(1049.0));
        let ucx = "Final:                  5000      4.635   844.646  1151.600       74.00      54.27        1184         868\n";
        assert_eq!(ucx_latency(ucx), Some(4.635));
        assert_eq!(ucx_bandwidth(ucx).map(|gb| (gb * 1000.0).round()), Some(455.0));
        assert_eq!(qperf_latency("tcp_lat:\n    latency  =  20.7 us\n"), Some(20.7));
        assert_eq!(qperf_bandwidth("tcp_bw:\n    bw  =  2.5 GB/sec\n"), Some(20.0));
        let stream = "name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer\n\
                      custom    64      1       2k      250k        5.16s      0.30    12.83\n";
        assert_eq!((rstream_latency(stream), rstream_bandwidth(stream)), (Some(12.83), Some(0.3)));
        assert_eq!(perftest_latency("Couldn't connect"), None);
        let iterations = "8192000 bytes in 0.03 seconds = 2184.53 Mbit/sec\n1000 iters in 0.03 seconds = 30.00 usec/iter\n";
        assert_eq!((pingpong_latency(iterations), pingpong_latency("")), (Some(15.0), None));
        let rows = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                    64      1k      =1k      125k        0.02s      6.58       9.73       0.10\n";
        assert_eq!((fi_pingpong_latency(rows), fi_pingpong_latency("bytes\n")), (Some(9.73), None));
        assert_eq!(ring_latency("ring: 12.50 us a hop, 400 hops\n"), Some(12.5));
    }
}
