pub(crate) mod samples;

use super::*;
use crate::board::{Board, Move};
use crate::error::ErrorKind;
use crate::run::{Branches, Run, RunMeta};
use proptest::prelude::*;

/// The a2run2 specification as serde types for the postcard crate. This is the oracle of our codec.
mod spec {
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    pub(in crate::format) struct RunV2 {
        pub(in crate::format) meta: Meta,
        pub(in crate::format) steps: Vec<StepV2>,
        pub(in crate::format) final_board: u64,
    }

    #[derive(Serialize, Deserialize)]
    pub(in crate::format) struct Meta {
        pub(in crate::format) steps: u32,
        pub(in crate::format) start_unix_s: u64,
        pub(in crate::format) elapsed_s: f32,
        pub(in crate::format) max_score: u64,
        pub(in crate::format) highest_tile: u32,
        pub(in crate::format) engine_str: Option<String>,
    }

    #[derive(Serialize, Deserialize)]
    pub(in crate::format) struct StepV2 {
        pub(in crate::format) pre_board: u64,
        pub(in crate::format) chosen: Move,
        pub(in crate::format) branches: Option<[BranchV2; 4]>,
    }

    #[derive(Serialize, Deserialize)]
    pub(in crate::format) enum Move {
        Up,
        Down,
        Left,
        Right,
    }

    #[derive(Serialize, Deserialize)]
    pub(in crate::format) enum BranchV2 {
        Legal(f32),
        Illegal,
    }
}

fn to_spec(run: &Run) -> spec::RunV2 {
    let meta = run.meta();
    spec::RunV2 {
        meta: spec::Meta {
            steps: run.num_steps() as u32,
            start_unix_s: meta.start_unix_s,
            elapsed_s: meta.elapsed_s,
            max_score: meta.max_score,
            highest_tile: meta.highest_tile,
            engine_str: meta.engine.clone(),
        },
        steps: (0..run.num_steps())
            .map(|i| spec::StepV2 {
                pre_board: run.boards()[i].0,
                chosen: match run.moves()[i] {
                    Move::Up => spec::Move::Up,
                    Move::Down => spec::Move::Down,
                    Move::Left => spec::Move::Left,
                    Move::Right => spec::Move::Right,
                },
                branches: run.branches(i).map(|branches| {
                    Move::ALL.map(|direction| match branches.legal & direction.bit() {
                        0 => spec::BranchV2::Illegal,
                        _ => spec::BranchV2::Legal(branches.values[direction as usize]),
                    })
                }),
            })
            .collect(),
        final_board: run.final_board().unwrap().board().0,
    }
}

fn to_postcard(run: &spec::RunV2) -> Vec<u8> {
    postcard::to_extend(run, Vec::new()).unwrap()
}

fn runs() -> impl Strategy<Value = Run> {
    let branches = (prop::array::uniform4(any::<u32>().prop_map(f32::from_bits)), 0u8..16)
        .prop_map(|(values, legal)| Branches { values, legal });
    let step = (any::<u64>(), 0u8..4, prop::option::of(branches));
    let meta = (any::<u64>(), any::<u32>(), any::<u64>(), any::<u32>(), prop::option::of(".{0,12}"));
    (meta, prop::collection::vec(step, 0..40), any::<u64>()).prop_map(|(meta, steps, final_board)| {
        let mut builder = Run::builder(steps.len());
        for (board, chosen, branches) in steps {
            builder.push(Board(board >> (chosen * 16)), Move::from_index(chosen).unwrap(), branches);
        }
        let (start_unix_s, elapsed_s, max_score, highest_tile, engine) = meta;
        let elapsed_s = f32::from_bits(elapsed_s);
        let elapsed_s = if elapsed_s.is_nan() { 0.5 } else { elapsed_s };
        builder
            .finish(
                RunMeta { start_unix_s, elapsed_s, max_score, highest_tile, engine, ..RunMeta::default() },
                Board(final_board),
            )
            .unwrap()
    })
}

fn sample(num_steps: usize) -> Run {
    let mut steps = Run::builder(num_steps);
    for i in 0..num_steps {
        let branches = Branches { values: [0.25, 0.5, 0.0, 0.75], legal: 0b1011 };
        steps.push(Board(0x8000_0000_0000_0001 + i as u64), Move::ALL[i % 4], (i % 3 > 0).then_some(branches));
    }
    let meta = RunMeta {
        start_unix_s: 1,
        elapsed_s: 2.0,
        max_score: 3,
        highest_tile: 4,
        engine: Some("λ".into()),
        ..RunMeta::default()
    };
    steps.finish(meta, Board(5)).unwrap()
}

#[track_caller]
fn refused(bytes: &[u8], message: &str) {
    let error = decode_run(bytes).unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
}

/// Changes A2T1 bytes, then repairs the checksum.
fn a2t1_with(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = encode_run(&sample(3), RunFormat::A2t1).unwrap();
    bytes.truncate(bytes.len() - 4);
    change(&mut bytes);
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn a2t1_errors_name_field_and_offset() {
    let good = a2t1_with(|_| {});
    assert!(decode_run(&good).is_ok());
    refused(&a2t1_with(|bytes| bytes[4] = 2), "byte 4: version: expected 1, found 2");
    refused(&a2t1_with(|bytes| bytes[5] = 1), "byte 5: endianness: expected 0 (little), found 1");
    refused(&a2t1_with(|bytes| bytes[36] = 0xff), "byte 36: engine: expected UTF-8");
    refused(&a2t1_with(|bytes| bytes[6] = 4), "byte 38: length of the file: expected 48 bytes for 4 steps");
    refused(&a2t1_with(|bytes| bytes[6..10].fill(0xff)), "byte 38: length of the file: expected 38654705667 bytes");
    refused(&a2t1_with(|bytes| bytes[34] = 0xff), "byte 36: engine: expected 255 bytes, found");
    let last = good.len() - 5;
    refused(&a2t1_with(|bytes| bytes[last] = 7), &format!("byte {last} (step 2): move: expected 0..=3, found 7"));

    let mut flipped = good;
    flipped[50] ^= 1;
    let error = decode_run(&flipped).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Checksum { .. }), "{error}");
    for len in 4..flipped.len() {
        assert!(decode_run(&flipped[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn a2run2_errors_name_field_and_offset() {
    // One step of 3 bytes. Offsets: 0 meta.steps, 1 start, 2 elapsed, 6 score, 7 tile, 8 engine, 9 count, 10
    // step, 13 final board.
    let good = [1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 17, 2, 0, 33];
    assert!(decode_run(&good).is_ok());
    let with = |offset: usize, byte: u8| {
        let mut bytes = good;
        bytes[offset] = byte;
        bytes
    };
    refused(&with(8, 2), "byte 8: engine: expected 0 (none) or 1 (its name follows), found 2");
    refused(&with(9, 2), "byte 9: number of steps: expected 1 as in meta.steps, found 2");
    refused(&with(11, 4), "byte 11 (step 0): move: expected 0..=3, found 4");
    refused(&with(12, 9), "byte 12 (step 0): branches: expected 0 (none) or 1 (four follow), found 9");
    refused(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 17, 2, 1, 5, 0], "byte 13 (step 0): branch: expected 0 (legal) or 1");
    refused(&[&good[..], &[0]].concat(), "byte 14: end of the run: expected the end of the file, found 1 more bytes");
    refused(&[0xff; 10], "byte 0: meta.steps: expected a varint of at most 32 bits, found a longer varint");
    refused(&[0xff, 0xff, 0xff, 0xff, 0x7f], "byte 0: meta.steps: expected a varint of at most 32 bits");
    refused(&[0xff, 0xff], "byte 0: meta.steps: expected a varint, found 2 bytes before the end");
    refused(&[1, 0, 0, 0, 0, 0, 0, 0, 1, 200, 1], "byte 9: length of engine: expected at most 0 bytes before the end");
    let huge = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0];
    refused(&huge, "byte 13: number of steps: expected at most 1 in the bytes before the end");
    refused(b"", "byte 0: content: expected a run, found an empty file");
    for len in 0..good.len() {
        assert!(decode_run(&good[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn errors_name_content_that_is_not_a_run() {
    let cut = format!("{}é", "x".repeat(PREFIX_LEN - 1));
    for (bytes, found) in [
        (&br#"{"run_id": 1, "steps": [1, 2]}"#[..], "JSON"),
        (b" \n [1, 2, 3, 4, 5, 6]", "JSON"),
        (b"run_id,board,move\n0,1,2\n", "text"),
        ("Läufe, Bretter und Züge\n".as_bytes(), "text"),
        (cut.as_bytes(), "text"),
    ] {
        refused(bytes, &format!("byte 0: content: expected a run, found {found}"));
    }
    // Other content may begin with the same byte.
    refused(b"{\"a\"", "byte 2: elapsed time");
}

#[test]
fn an_a2run2_file_may_begin_with_the_magic_of_a2t1() {
    // 0x41 = 65 steps, start 0x32, elapsed time from the bytes "T1" and two more.
    let mut steps = Run::builder(65);
    for _ in 0..65 {
        steps.push(Board(1), Move::Up, None);
    }
    let elapsed_s = f32::from_le_bytes([b'T', b'1', 0, 0]);
    let run = steps.finish(RunMeta { start_unix_s: 0x32, elapsed_s, ..RunMeta::default() }, Board(1)).unwrap();
    let bytes = encode_run(&run, RunFormat::A2run2).unwrap();
    assert!(bytes.starts_with(b"A2T1"));
    assert_eq!(decode_run(&bytes).unwrap(), (run, RunFormat::A2run2));
}

#[test]
fn a2t1_round_trip_drops_only_branches() {
    let run = sample(50);
    let bytes = encode_run(&run, RunFormat::A2t1).unwrap();
    let (back, format) = decode_run(&bytes).unwrap();
    assert_eq!(format, RunFormat::A2t1);
    assert_eq!((back.boards(), back.moves()), (run.boards(), run.moves()));
    assert_eq!((back.meta(), back.final_board()), (run.meta(), run.final_board()));
    assert!(back.has_evs().iter().all(|&has| !has));
    assert_eq!(encode_run(&back, RunFormat::A2t1).unwrap(), bytes);
}

#[test]
fn a2t1_rejects_a_too_long_engine_name() {
    let meta = RunMeta { engine: Some("x".repeat(65_536)), ..RunMeta::default() };
    let run = Run::builder(0).finish(meta, Board(0)).unwrap();
    assert!(encode_run(&run, RunFormat::A2t1).unwrap_err().to_string().contains("at most 65535 bytes"));
    let bytes = encode_run(&run, RunFormat::A2run2).unwrap();
    assert_eq!(decode_run(&bytes).unwrap().0, run);
}

#[test]
fn overlong_varints_are_accepted() {
    let mut steps = Run::builder(40);
    for i in 0..40 {
        let branches = Branches { values: [0.25, 0.5, 0.0, 0.75], legal: 0b1011 };
        steps.push(Board(0x3a5_1234_5678 << (i / 2) | i), Move::Up, (i % 3 > 0).then_some(branches));
    }
    let run = steps.finish(RunMeta::default(), Board(5)).unwrap();
    let usual = encode_run(&run, RunFormat::A2run2).unwrap();
    let mut lengthened = 0;
    for &board in run.boards() {
        let mut short = Vec::new();
        files::bytes::put_varint(&mut short, board.0);
        let at = usual.windows(short.len()).position(|window| window == short).unwrap();
        let mut long = short.clone();
        *long.last_mut().unwrap() |= 0x80;
        long.push(0);
        if long.len() > 10 {
            continue;
        }
        let bytes = [&usual[..at], &long, &usual[at + short.len()..]].concat();
        let (decoded, _) = decode_run(&bytes).unwrap();
        assert_eq!(decoded, run);
        assert_eq!(encode_run(&decoded, RunFormat::A2run2).unwrap(), usual);
        lengthened += 1;
    }
    assert!(lengthened >= 30, "{lengthened}");
}

proptest! {
    #[test]
    fn a2run2_agrees_with_postcard(run in runs()) {
        let bytes = encode_run(&run, RunFormat::A2run2).unwrap();
        prop_assert_eq!(&bytes, &to_postcard(&to_spec(&run)));
        let (back, _) = decode_run(&bytes).unwrap();
        prop_assert_eq!(back, run);
    }

    #[test]
    fn damaged_bytes_decode_as_with_postcard(
        run in runs(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encode_run(&run, RunFormat::A2run2).unwrap();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        let ours = a2run2::decode(&bytes);
        let theirs = postcard::take_from_bytes::<spec::RunV2>(&bytes)
            .ok()
            .filter(|(run, rest)| rest.is_empty() && run.meta.steps as usize == run.steps.len());
        match (ours, theirs) {
            (Ok(ours), Some((theirs, _))) => {
                let (ours, theirs) = (to_spec(&ours), theirs);
                prop_assert_eq!(to_postcard(&ours), to_postcard(&theirs));
            }
            (Err(_), None) => {}
            (ours, theirs) => prop_assert!(false, "we: {:?}, postcard: {}", ours.map(|_| ()), theirs.is_some()),
        }
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), magic in any::<bool>()) {
        let bytes = if magic { [b"A2T1\x01\x00", &bytes[..]].concat() } else { bytes };
        let _ = decode_run(&bytes);
    }
}
