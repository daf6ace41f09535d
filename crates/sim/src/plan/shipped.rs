//! The plans that come with the program.

/// A plan that comes with the program.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Where it is in the repository: `experiments/irn/fig01.toml`.
    pub path: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! plans {
    ($($path:literal),* $(,)?) => {
        &[$(Shipped {
            path: concat!("experiments/", $path),
            text: include_str!(concat!("../../../../experiments/", $path)),
        }),*]
    };
}

const ALL: &[Shipped] = plans![
    "irn/fig01.toml",
    "irn/fig02.toml",
    "irn/fig03.toml",
    "irn/fig04.toml",
    "irn/fig05.toml",
    "irn/fig06.toml",
    "irn/fig07.toml",
    "irn/factor-recovery.toml",
    "irn/factor-backoff.toml",
    "irn/factor-timeouts.toml",
    "irn/sweep-load.toml",
    "irn/sweep-bandwidth.toml",
    "irn/sweep-scale.toml",
    "irn/sweep-workload.toml",
    "irn/sweep-buffers.toml",
    "irn/sweep-parameters.toml",
    "irn/fig08.toml",
    "irn/fig09.toml",
    "irn/incast-variants.toml",
    "irn/incast-cross.toml",
    "irn/window-cc.toml",
    "irn/fig10.toml",
    "irn/fig11.toml",
    "irn/sweep-duration.toml",
    "irn/partial-acks.toml",
    "irn/open-choices.toml",
    "irn/overheads.toml",
];

/// Every plan that comes with the program, in the order of the paper.
pub fn shipped() -> &'static [Shipped] {
    ALL
}

impl Shipped {
    /// Its file's name without ending: `fig01`.
    pub fn name(&self) -> &'static str {
        let last = self.path.rsplit('/').next().unwrap_or(self.path);
        last.strip_suffix(".toml").unwrap_or(last)
    }
}
