//! The colours of tiles.

/// The colours of tiles by exponent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Palette {
    /// The colours of the game 2048. Tiles from 4096 on have colours of this project.
    #[default]
    Classic,
    /// The colour map viridis, from light to dark. Lightness orders the tiles for every kind of colour vision.
    Viridis,
}

/// The colours up to 2048 are from Gabriele Cirulli's 2048 (MIT licence).
const CLASSIC: [u32; 17] = [
    0xcdc1b4, 0xeee4da, 0xede0c8, 0xf2b179, 0xf59563, 0xf67c5f, 0xf65e3b, 0xedcf72, 0xedcc61, 0xedc850, 0xedc53f,
    0xedc22e, 0xb9314a, 0xa3203f, 0x6c2f8a, 0x2f5fae, 0x1d1b18,
];

/// Samples of viridis by Stéfan van der Walt and Nathaniel Smith (CC0).
const VIRIDIS: [u32; 17] = [
    0x808080, 0xfde725, 0xdce319, 0xb8de29, 0x95d840, 0x73d055, 0x55c667, 0x3cbb75, 0x29af7f, 0x20a387, 0x1f968b,
    0x238a8d, 0x287d8e, 0x2d708e, 0x39568c, 0x453781, 0x440154,
];

impl Palette {
    /// Returns the colour of the tile with this exponent, 0 (an empty cell) to 16, in CSS, such as `#cdc1b4`.
    #[must_use]
    pub fn background(self, exp: u8) -> String {
        let colors = match self {
            Palette::Classic => &CLASSIC,
            Palette::Viridis => &VIRIDIS,
        };
        format!("#{:06x}", colors[usize::from(exp).min(16)])
    }

    /// Returns the colour of the tile's number, which has the most contrast: black on light tiles, white from 4096 on.
    #[must_use]
    pub fn text(exp: u8) -> &'static str {
        if exp < 12 { "#000000" } else { "#ffffff" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the relative luminance of WCAG 2, 0 to 1.
    fn luminance(color: &str) -> f64 {
        let linear = |place: usize| {
            let part = f64::from(u8::from_str_radix(&color[place..place + 2], 16).unwrap()) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(1) + 0.7152 * linear(3) + 0.0722 * linear(5)
    }

    #[test]
    fn every_number_is_legible() {
        for palette in [Palette::Classic, Palette::Viridis] {
            for exp in 1..=16 {
                let (a, b) = (luminance(&palette.background(exp)), luminance(Palette::text(exp)));
                let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                // WCAG 2 asks for 4.5 for normal text.
                assert!(contrast >= 4.5, "{palette:?} {exp}: {contrast}");
            }
        }
        let lightness = (1..=16).map(|exp| luminance(&Palette::Viridis.background(exp))).collect::<Vec<_>>();
        assert!(lightness.is_sorted_by(|a, b| a > b), "{lightness:?}");
    }
}
