//! Random changes of valid bytes.

use super::random::Random;

/// The longest input.
pub(super) const MAX_LEN: usize = 64 << 10;

/// A number at a fixed place of a format: its offset and width in bytes.
pub(super) type Field = (usize, usize);

const BYTES: [u8; 10] = [0, 1, 2, 4, 0x10, 0x7f, 0x80, 0xc0, 0xfe, 0xff];
const NUMBERS: [u64; 20] = [
    0,
    1,
    3,
    4,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    u64::MAX / 32,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// Changes bytes once or several times, with probability 1/2 once. `other` is another valid input, and `field` picks a
/// number of the format.
pub(super) fn havoc(
    bytes: &mut Vec<u8>,
    other: &[u8],
    random: &mut Random,
    field: impl Fn(&[u8], &mut Random) -> Option<Field>,
) {
    for _ in 0..rounds(random) {
        match random.below(20) {
            0..=5 => match field(bytes, random) {
                Some(field) => change_number(bytes, field, random),
                None => change_byte(bytes, random),
            },
            6 => {
                let width = *random.pick(&[2, 4, 8]);
                let offset = random.below(bytes.len());
                change_number(bytes, (offset, width), random);
            }
            7 | 8 => change_varint(bytes, random),
            9 => bytes.truncate(random.below(bytes.len())),
            10 => {
                let len = random.range(other.len().min(256)).len();
                let value = *random.pick(&BYTES);
                let tail: Vec<u8> = (0..len).map(|_| if value < 4 { random.next() as u8 } else { value }).collect();
                bytes.extend(tail);
            }
            11 => {
                bytes.drain(random.range(bytes.len()));
            }
            12 => {
                let block = bytes[random.range(bytes.len())].to_vec();
                let at = random.below(bytes.len() + 1);
                bytes.splice(at..at, block);
            }
            13 => {
                let block: Vec<u8> = bytes.drain(random.range(bytes.len())).collect();
                let at = random.below(bytes.len() + 1);
                bytes.splice(at..at, block);
            }
            14 => {
                // Overwrite a range with a piece of `other`.
                let block = &other[random.range(other.len())];
                let at = random.below(bytes.len() + 1);
                let end = (at + block.len()).min(bytes.len());
                bytes.splice(at..end, block.iter().copied());
            }
            15 if random.one_in(2) => {
                bytes.truncate(random.below(bytes.len()));
                bytes.extend_from_slice(&other[random.below(other.len())..]);
            }
            15 | 16 => {
                let value = *random.pick(&BYTES);
                let range = random.range(bytes.len());
                bytes[range].fill(value);
            }
            _ => change_byte(bytes, random),
        }
    }
    bytes.truncate(MAX_LEN);
}

/// Changes a text once or several times. `tokens` are words of the format.
pub(super) fn havoc_text(text: &mut Vec<u8>, other: &[u8], tokens: &[&str], random: &mut Random) {
    for _ in 0..rounds(random) {
        let at = random.below(text.len() + 1);
        match random.below(12) {
            0..=3 => {
                let digits: Vec<usize> = (0..text.len()).filter(|&at| text[at].is_ascii_digit()).collect();
                if let Some(&at) = digits.get(random.below(digits.len())) {
                    match random.below(4) {
                        0 => {
                            let numbers = [
                                "15",
                                "16",
                                "17",
                                "-1",
                                "1.5",
                                "-0",
                                "00",
                                "1e999",
                                "4294967296",
                                "18446744073709551615",
                                "99999999999999999999",
                            ];
                            text.splice(at..=at, random.pick(&numbers).bytes());
                        }
                        1 => {
                            let more = vec![b'0' + random.below(10) as u8; 1 + random.below(40)];
                            text.splice(at..at, more);
                        }
                        _ => text[at] = b'0' + random.below(10) as u8,
                    }
                }
            }
            4 | 5 => {
                let token = random.pick(tokens).bytes();
                let end = if random.one_in(2) { at } else { (at + token.len()).min(text.len()) };
                text.splice(at..end, token);
            }
            6 => {
                // Replace a token by another.
                let (from, to) = (random.pick(tokens).as_bytes(), random.pick(tokens).as_bytes());
                if let Some(found) = text.windows(from.len()).position(|window| window == from) {
                    text.splice(found..found + from.len(), to.iter().copied());
                }
            }
            7 => {
                let depth = *random.pick(&[1, 2, 6, 40, 130, 2000]);
                let bracket = *random.pick(b"[]{}(),:\"'");
                text.splice(at..at, vec![bracket; depth]);
            }
            8 => {
                // Repeat or move a line or a list item.
                let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n' || byte == b',').collect();
                let mut lines: Vec<Vec<u8>> = lines.into_iter().map(<[u8]>::to_vec).collect();
                if !lines.is_empty() {
                    let line = lines[random.below(lines.len())].clone();
                    lines.insert(random.below(lines.len()), line);
                    if random.one_in(2) {
                        lines.remove(random.below(lines.len()));
                    }
                    *text = lines.concat();
                }
            }
            9 => havoc(text, other, random, |_, _| None),
            _ => change_byte(text, random),
        }
    }
    text.truncate(MAX_LEN);
}

fn rounds(random: &mut Random) -> u32 {
    1 + (random.next() | 1 << 5).trailing_zeros()
}

fn change_byte(bytes: &mut [u8], random: &mut Random) {
    let at = random.below(bytes.len());
    let Some(byte) = bytes.get_mut(at) else { return };
    *byte = match random.below(4) {
        0 => *random.pick(&BYTES),
        1 => byte.wrapping_add(1),
        2 => byte.wrapping_sub(1),
        _ => *byte ^ 1 << random.below(8),
    };
}

/// Sets a little-endian number to an edge value.
pub(super) fn change_number(bytes: &mut [u8], (offset, width): Field, random: &mut Random) {
    let len = bytes.len() as u64;
    let Some(field) = bytes.get_mut(offset..offset + width) else { return };
    let mut number = [0; 8];
    number[..width].copy_from_slice(field);
    let old = u64::from_le_bytes(number);
    let new = match random.below(10) {
        0..=2 => *random.pick(&NUMBERS),
        3 | 4 => old.wrapping_add(1),
        5 | 6 => old.wrapping_sub(1),
        7 => old ^ 1 << random.below(8 * width),
        8 => random
            .pick(&[len, len.saturating_sub(32), len - offset as u64, old << 1])
            .wrapping_sub(random.below(3) as u64),
        _ => random.below(8) as u64,
    };
    field.copy_from_slice(&new.to_le_bytes()[..width]);
}

/// Makes the varint at a random place longer, too long, or as large as possible.
fn change_varint(bytes: &mut Vec<u8>, random: &mut Random) {
    let start = random.below(bytes.len());
    let Some(len) = bytes[start..].iter().take(10).position(|&byte| byte < 0x80) else { return };
    let last = start + len;
    match random.below(4) {
        0 => {
            bytes[last] |= 0x80;
            bytes.insert(last + 1, 0);
        }
        1 => {
            bytes[last] |= 0x80;
            bytes.splice(last + 1..last + 1, vec![0x80; random.below(10)].into_iter().chain([0]));
        }
        2 => {
            let maximal = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1 + random.below(3) as u8];
            bytes.splice(start..=last, maximal);
        }
        _ => {
            bytes.splice(start..=last, [0xff, 0xff, 0xff, 0xff, 0x0f]);
        }
    }
}
