//! The four moves.

/// A direction to slide in, numbered in the order UDLR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, bytemuck::NoUninit)]
#[repr(u8)]
pub enum Move {
    /// 0
    Up = 0,
    /// 1
    Down = 1,
    /// 2
    Left = 2,
    /// 3
    Right = 3,
}

impl Move {
    /// The four moves in the order of their numbers.
    pub const ALL: [Move; 4] = [Move::Up, Move::Down, Move::Left, Move::Right];

    /// Returns the move with this number; `None` above 3.
    #[must_use]
    #[inline]
    pub const fn from_index(index: u8) -> Option<Move> {
        if index < 4 { Some(Move::ALL[index as usize]) } else { None }
    }

    /// Returns the move's bit in a legality mask: bit 0 is up, bit 3 is right.
    #[must_use]
    #[inline]
    pub const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Returns `"up"`, `"down"`, `"left"` or `"right"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["up", "down", "left", "right"][self as usize]
    }
}
