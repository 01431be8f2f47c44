//! The phases of a game, and the tiles at which they begin.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// The tiles at which the middle and the late game begin. The largest tile on the board decides.
///
/// ```
/// use a2store::Phases;
/// use a2store::archive::Phase;
/// let phases = Phases::default();
/// assert_eq!((phases.mid, phases.late), (1024, 4096));
/// assert_eq!(phases.of_max_exp(10), Phase::Mid);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Phases {
    /// The smallest tile of `mid`. Smaller tiles are `early`.
    pub mid: u32,
    /// The smallest tile of `late`.
    pub late: u32,
}

/// The phase of a game that a step belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Below the threshold of [`Phases::mid`].
    Early,
    /// From [`Phases::mid`] on, below [`Phases::late`].
    Mid,
    /// From [`Phases::late`] on.
    Late,
}

impl Default for Phases {
    fn default() -> Self {
        Phases { mid: 1024, late: 4096 }
    }
}

impl Phases {
    /// Returns the phase of a board whose largest exponent is `max_exp`.
    #[must_use]
    pub fn of_max_exp(self, max_exp: u8) -> Phase {
        let tile = 1u32 << max_exp;
        if tile >= self.late {
            Phase::Late
        } else if tile >= self.mid {
            Phase::Mid
        } else {
            Phase::Early
        }
    }

    pub(super) fn check(self) -> Result<()> {
        let is_tile = |tile: u32| tile.is_power_of_two() && (2..=32768).contains(&tile);
        if !is_tile(self.mid) || !is_tile(self.late) || self.mid >= self.late {
            let found = format!("mid {}, late {}", self.mid, self.late);
            return Err(Error::argument("phases", "tiles (2, 4, …, 32768) with mid below late", found));
        }
        Ok(())
    }
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Phase; 3] = [Phase::Early, Phase::Mid, Phase::Late];

    /// Returns `"early"`, `"mid"` or `"late"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["early", "mid", "late"][self as usize]
    }
}
