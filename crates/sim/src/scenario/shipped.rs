//! The scenarios that come with this crate.

use super::Scenario;

/// A scenario file of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShippedScenario {
    /// Its name: the file's, without the ending.
    pub name: &'static str,
    /// The file.
    pub text: &'static str,
}

impl ShippedScenario {
    /// The scenario in the file.
    ///
    /// # Panics
    /// Never: a test reads them all.
    pub fn scenario(&self) -> Scenario {
        match Scenario::parse(self.name, self.text) {
            Ok(scenario) => scenario,
            Err(found) => panic!("a shipped scenario is wrong: {found:?}"),
        }
    }
}

/// All of them, in the order of their names.
pub fn shipped() -> &'static [ShippedScenario] {
    &SHIPPED
}

macro_rules! shipped {
    ($name:literal) => {
        ShippedScenario {
            name: $name,
            text: include_str!(concat!("../../scenarios/", $name, ".toml")),
        }
    };
}

const SHIPPED: [ShippedScenario; 26] = [
    shipped!("s01-one-slow"),
    shipped!("s02-gc-pauses"),
    shipped!("s03-antagonist"),
    shipped!("s04-black-hole"),
    shipped!("s05-hang"),
    shipped!("s06-cold-start"),
    shipped!("s07-herd"),
    shipped!("s07-herd-of-one"),
    shipped!("s08-all-slow"),
    shipped!("s09-flapping"),
    shipped!("s10-unequal"),
    shipped!("s10-unequal-busy"),
    shipped!("s11-recovery"),
    shipped!("s12-low-traffic"),
    shipped!("s13-flash-crowd"),
    shipped!("s14-rolling-deploy"),
    shipped!("s15-brown-out"),
    shipped!("s16-partial-errors"),
    shipped!("s17-slow-failure"),
    shipped!("s18-stuck-endpoint"),
    shipped!("s19-bimodal"),
    shipped!("s20-hundred"),
    shipped!("s21-ten-thousand"),
    shipped!("s22-backup"),
    shipped!("s23-zone-loss"),
    shipped!("s24-fast-failure"),
];
