//! Compression of individual pack entries.

use crate::error::{Error, Result};
use crate::format::run_file::MAX_RUN_BYTES;
use crate::system::names::text_form;
use lz4_flex::frame::{BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use std::io::{self, Read, Write};

/// The compression of an entry's payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// Uncompressed. Other tools read only uncompressed payloads.
    #[default]
    None,
    /// One Zstandard frame.
    Zstd,
    /// One LZ4 frame.
    Lz4,
}

/// Higher levels gain little: the values of branches hardly compress, and boards compress well at any level.
const ZSTD_LEVEL: i32 = 3;
/// The decompressed size in bytes that every entry may have, in addition to three times its stored length. A step
/// takes at least three bytes in a run file, and ten times as much in memory.
const ALWAYS_ALLOWED: u64 = 256 << 10;

const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// The largest allowed code for an LZ4 block size: 256 KiB. The decoder allocates three blocks before it reads
/// one.
const LZ4_MAX_BLOCKS: u8 = 5;
/// The flag of an LZ4 frame that announces the content length.
const LZ4_CONTENT_LEN: u8 = 1 << 3;

impl Compression {
    /// Every compression, in the order of the codes in the index.
    pub const ALL: [Compression; 3] = [Compression::None, Compression::Zstd, Compression::Lz4];

    /// Returns `"none"`, `"zstd"` or `"lz4"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Zstd => "zstd",
            Compression::Lz4 => "lz4",
        }
    }
}

text_form!(Compression, "compression", "none, zstd or lz4");

/// Returns the maximum payload length for an entry of this stored length.
fn limit(stored_len: usize) -> u64 {
    (stored_len as u64).saturating_mul(3).saturating_add(ALWAYS_ALLOWED).min(MAX_RUN_BYTES)
}

/// Decompresses a payload. Allocates at most the permitted payload length.
pub(super) fn decompress(compression: Compression, stored: &[u8]) -> Result<Vec<u8>> {
    let limit = limit(stored.len());
    let too_long = |found: String| {
        let expected = format!("at most {limit} bytes from {} stored ones", stored.len());
        Error::decode(0, "decompressed length", expected, found)
    };
    let declared = declared_len(compression, stored);
    if let Some(declared) = declared.filter(|&declared| declared > limit) {
        return Err(too_long(format!("{declared} bytes")));
    }
    let capacity = declared.unwrap_or(limit) as usize;
    let damaged = |what, error: io::Error| Error::decode(0, what, "one complete frame", error);
    let mut payload = Vec::new();
    match compression {
        Compression::None => payload.extend_from_slice(stored),
        Compression::Zstd => {
            // One-shot decompression ignores the window size that the frame requests.
            payload.reserve_exact(capacity);
            zstd::bulk::Decompressor::new()
                .and_then(|mut decompressor| decompressor.decompress_to_buffer(stored, &mut payload))
                .map_err(|error| damaged("zstd frame", error))?;
        }
        Compression::Lz4 => {
            // Legacy LZ4 frames may have larger blocks.
            if !stored.starts_with(&LZ4_MAGIC) {
                let found = stored.get(..4).unwrap_or(stored).escape_ascii();
                return Err(Error::decode(0, "lz4 frame", "its magic number", found));
            }
            if let Some(blocks) = stored.get(5).map(|byte| byte >> 4 & 7).filter(|&blocks| blocks > LZ4_MAX_BLOCKS) {
                let expected = format!("at most {LZ4_MAX_BLOCKS} (256 KiB)");
                return Err(Error::decode(5, "block size of the lz4 frame", expected, blocks));
            }
            payload.reserve_exact(capacity + 1);
            let mut frame = FrameDecoder::new(stored).take(capacity as u64 + 1);
            frame.read_to_end(&mut payload).map_err(|error| damaged("lz4 frame", error))?;
        }
    }
    // The decoder accepts a truncated LZ4 frame, so the length is checked here. No run file is empty.
    match (payload.len() as u64, declared) {
        (found, Some(declared)) if found != declared || found == 0 => {
            let expected = format!("{} bytes as in the frame", declared.max(1));
            Err(Error::decode(0, "decompressed length", expected, format_args!("{found} bytes or more")))
        }
        (0, None) => Err(Error::decode(0, "decompressed length", "1 byte or more", "none")),
        (found, None) if found > limit => Err(too_long("more".into())),
        _ => Ok(payload),
    }
}

/// Returns the payload length that the frame declares, if any. The value is untrusted.
fn declared_len(compression: Compression, stored: &[u8]) -> Option<u64> {
    match compression {
        Compression::None => Some(stored.len() as u64),
        Compression::Zstd => zstd::zstd_safe::get_frame_content_size(stored).ok().flatten(),
        Compression::Lz4 => {
            let flags = *stored.get(4)?;
            let len = stored.get(6..)?.first_chunk()?;
            (flags & LZ4_CONTENT_LEN != 0).then(|| u64::from_le_bytes(*len))
        }
    }
}

/// Returns the maximum memory that a payload takes, in bytes.
pub(super) fn payload_len(compression: Compression, stored: &[u8]) -> u64 {
    let limit = if compression == Compression::None { u64::MAX } else { limit(stored.len()) };
    declared_len(compression, stored).unwrap_or(limit).min(limit)
}

/// Compresses a payload. Returns `None` if the result is not shorter or exceeds the decompression limit.
pub(super) fn compress(compression: Compression, payload: &[u8]) -> Result<Option<Vec<u8>>> {
    let stored = match compression {
        Compression::None => return Ok(None),
        Compression::Zstd => zstd::bulk::compress(payload, ZSTD_LEVEL)?,
        Compression::Lz4 => {
            let blocks = if payload.len() <= 64 << 10 { BlockSize::Max64KB } else { BlockSize::Max256KB };
            let info = FrameInfo::new().content_size(Some(payload.len() as u64)).block_size(blocks);
            let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(payload)?;
            encoder.finish().map_err(io::Error::other)?
        }
    };
    let worth = stored.len() < payload.len() && payload.len() as u64 <= limit(stored.len());
    Ok(worth.then_some(stored))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const BOTH: [Compression; 2] = [Compression::Zstd, Compression::Lz4];

    #[test]
    fn payloads_survive_a_round_trip() {
        for payload in [b"2048 ".repeat(1000), vec![7; 200 << 10]] {
            for compression in BOTH {
                let stored = compress(compression, &payload).unwrap().unwrap();
                assert_eq!(payload_len(compression, &stored), payload.len() as u64);
                assert_eq!(decompress(compression, &stored).unwrap(), payload);
            }
        }
    }

    #[test]
    fn payloads_that_do_not_shrink_stay_uncompressed() {
        for compression in BOTH {
            assert_eq!(compress(compression, b"2048").unwrap(), None);
            assert_eq!(compress(compression, &vec![0; 300 << 10]).unwrap(), None);
        }
    }

    #[test]
    fn rejects_decompression_bombs() {
        let bomb = vec![0; 64 << 20];
        let with_len = zstd::bulk::compress(&bomb, 1).unwrap();
        let mut streamed = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        streamed.write_all(&bomb).unwrap();
        let streamed = streamed.finish().unwrap();
        let lz4 = |len| {
            let mut encoder = FrameEncoder::with_frame_info(FrameInfo::new().content_size(len), Vec::new());
            encoder.write_all(&bomb).unwrap();
            encoder.finish().unwrap()
        };
        let zstd = [with_len, streamed].map(|stored| (Compression::Zstd, stored));
        let lz4 = [lz4(None), lz4(Some(bomb.len() as u64))].map(|stored| (Compression::Lz4, stored));
        for (compression, stored) in zstd.into_iter().chain(lz4) {
            assert!(payload_len(compression, &stored) <= limit(stored.len()));
            let error = decompress(compression, &stored).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Decode { .. }), "{error}");
        }
    }

    #[test]
    fn damaged_frames_never_panic() {
        let payload = b"2048 ".repeat(20);
        for compression in BOTH {
            let stored = compress(compression, &payload).unwrap().unwrap();
            for len in 0..stored.len() {
                // A truncated frame may lack its end mark, but no content.
                if let Ok(shorter) = decompress(compression, &stored[..len]) {
                    assert_eq!(shorter, payload);
                }
            }
            for bit in 0..8 * stored.len() {
                let mut flipped = stored.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                let _ = decompress(compression, &flipped);
            }
        }
    }
}
