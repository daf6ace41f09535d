//! Which congestion control new queue pairs get, by name or with constants of one's own.

use super::{
    Aimd, AimdParameters, Congestion, Dcqcn, DcqcnParameters, Dctcp, DctcpParameters, Rate, Timely,
    TimelyParameters,
};
use std::fmt;
use std::str::FromStr;

/// Which congestion control new queue pairs get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CongestionChoice {
    /// Line rate, always.
    #[default]
    None,
    /// DCQCN with its paper's parameters.
    Dcqcn,
    /// DCQCN with parameters in the style of ConnectX firmware.
    DcqcnConnectx,
    /// Timely with its paper's parameters.
    Timely,
    /// Timely with a step that grows with the link.
    TimelyScaled,
    /// Timely with an update per 16 packets, its paper's smallest segment, instead of per round trip.
    TimelySegments,
    /// Timely that also halves its rate at losses (IRN §4.3, question 1).
    TimelyBackoff,
    /// TCP's additive increase and multiplicative decrease, from the bandwidth-delay product on.
    Aimd,
    /// DCTCP; acknowledgements echo ECN marks, so both ends must choose it.
    Dctcp,
    /// Any of them with constants of one's own.
    With(CongestionParameters),
}

/// Constants of a congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionParameters {
    /// Of DCQCN.
    Dcqcn(DcqcnParameters),
    /// Of Timely.
    Timely(TimelyParameters),
    /// Of AIMD.
    Aimd(AimdParameters),
    /// Of DCTCP.
    Dctcp(DctcpParameters),
}

impl CongestionChoice {
    /// All that have a name of their own.
    pub const NAMED: [CongestionChoice; 9] = [
        CongestionChoice::None,
        CongestionChoice::Dcqcn,
        CongestionChoice::DcqcnConnectx,
        CongestionChoice::Timely,
        CongestionChoice::TimelyScaled,
        CongestionChoice::TimelySegments,
        CongestionChoice::TimelyBackoff,
        CongestionChoice::Aimd,
        CongestionChoice::Dctcp,
    ];

    /// Its name in plans and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            CongestionChoice::None => "none",
            CongestionChoice::Dcqcn => "dcqcn",
            CongestionChoice::DcqcnConnectx => "dcqcn-connectx",
            CongestionChoice::Timely => "timely",
            CongestionChoice::TimelyScaled => "timely-scaled",
            CongestionChoice::TimelySegments => "timely-segments",
            CongestionChoice::TimelyBackoff => "timely-backoff",
            CongestionChoice::Aimd => "aimd",
            CongestionChoice::Dctcp => "dctcp",
            CongestionChoice::With(CongestionParameters::Dcqcn(_)) => "dcqcn with own constants",
            CongestionChoice::With(CongestionParameters::Timely(_)) => "timely with own constants",
            CongestionChoice::With(CongestionParameters::Aimd(_)) => "aimd with own constants",
            CongestionChoice::With(CongestionParameters::Dctcp(_)) => "dctcp with own constants",
        }
    }

    /// Whether it listens to ECN marks, so that its packets should be sent as ECN-capable.
    pub const fn uses_ecn(self) -> bool {
        self.echoes_marks()
            || matches!(
                self,
                CongestionChoice::Dcqcn
                    | CongestionChoice::DcqcnConnectx
                    | CongestionChoice::With(CongestionParameters::Dcqcn(_))
            )
    }

    /// Whether marks come back in acknowledgements instead of in CNPs.
    pub const fn echoes_marks(self) -> bool {
        matches!(self, CongestionChoice::Dctcp | CongestionChoice::With(CongestionParameters::Dctcp(_)))
    }

    /// The state machine of a new flow, on a link of `line_rate`. Windows start at `bdp` packets and never exceed `window_max`.
    pub fn start(self, line_rate: Rate, bdp: u32, window_max: u32) -> Congestion {
        let bdp = bdp.min(window_max);
        let parameters = match self {
            CongestionChoice::None => return Congestion::None,
            CongestionChoice::Dcqcn => CongestionParameters::Dcqcn(DcqcnParameters::paper(line_rate)),
            CongestionChoice::DcqcnConnectx => {
                CongestionParameters::Dcqcn(DcqcnParameters::connectx(line_rate))
            }
            CongestionChoice::Timely => CongestionParameters::Timely(TimelyParameters::paper(line_rate)),
            CongestionChoice::TimelyScaled => {
                CongestionParameters::Timely(TimelyParameters::scaled(line_rate))
            }
            CongestionChoice::TimelySegments => {
                CongestionParameters::Timely(TimelyParameters::paper(line_rate).with_segments(16))
            }
            CongestionChoice::TimelyBackoff => {
                CongestionParameters::Timely(TimelyParameters::paper(line_rate).with_backoff_on_loss())
            }
            CongestionChoice::Aimd => CongestionParameters::Aimd(AimdParameters::tcp(bdp, window_max)),
            CongestionChoice::Dctcp => CongestionParameters::Dctcp(DctcpParameters::usual(bdp, window_max)),
            CongestionChoice::With(parameters) => parameters,
        };
        match parameters {
            CongestionParameters::Dcqcn(p) => Congestion::Dcqcn(Box::new(Dcqcn::new(p))),
            CongestionParameters::Timely(p) => Congestion::Timely(Box::new(Timely::new(p))),
            CongestionParameters::Aimd(p) => Congestion::Aimd(Box::new(Aimd::new(p))),
            CongestionParameters::Dctcp(p) => Congestion::Dctcp(Box::new(Dctcp::new(p))),
        }
    }
}

impl fmt::Display for CongestionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no congestion control's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCongestion(pub String);

impl fmt::Display for UnknownCongestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is none of {}",
            self.0,
            CongestionChoice::NAMED.map(CongestionChoice::name).join(", ")
        )
    }
}

impl std::error::Error for UnknownCongestion {}

impl FromStr for CongestionChoice {
    type Err = UnknownCongestion;

    fn from_str(text: &str) -> Result<CongestionChoice, UnknownCongestion> {
        CongestionChoice::NAMED
            .into_iter()
            .find(|choice| choice.name() == text)
            .ok_or_else(|| UnknownCongestion(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionControl;
    use super::*;

    #[test]
    fn names_lead_back_to_choices_and_wrong_ones_name_the_right_ones() {
        for choice in CongestionChoice::NAMED {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        let error = "bbr".parse::<CongestionChoice>().expect_err("no such thing");
        assert_eq!(
            error.to_string(),
            "`bbr` is none of none, dcqcn, dcqcn-connectx, timely, timely-scaled, timely-segments, timely-backoff, aimd, dctcp"
        );
    }

    #[test]
    fn every_flow_starts_at_line_rate_or_with_the_bandwidth_delay_product() {
        for choice in CongestionChoice::NAMED {
            let congestion = choice.start(Rate::from_gbps(40), 111, 4096);
            assert!(congestion.rate().is_none_or(|rate| rate == Rate::from_gbps(40)), "{choice}");
            assert!(congestion.window().is_none_or(|window| window == 111), "{choice}");
        }
        assert_eq!(CongestionChoice::Aimd.start(Rate::from_gbps(40), 111, 16).window(), Some(16));
    }
}
