use super::*;
use crate::board::{Board, Move};
use crate::run::Branches;
use flate2::Compression;
use flate2::read::{DeflateEncoder, GzEncoder};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const TYPES: [&str; 3] = ["search", "tuple10", "tuple11"];

/// Returns the run with the valuation types that `rows_of` writes.
fn typed(run: Run) -> Run {
    let mut details = StepDetails::default();
    for place in 0..run.num_steps() {
        assert!(details.push(StepDetail { valuation_type: Some(TYPES[place % 3]), ..StepDetail::default() }));
    }
    run.with_details(details)
}

/// Writes the rows of a run as an engine does, with additional keys.
fn rows_of(run: &Run) -> String {
    let seed = run.meta().seed.unwrap();
    let mut out = String::new();
    for place in 0..run.num_steps() {
        let step = run.step(place).unwrap();
        let mut row = json!({
            "seed": seed,
            "step_index": step.index,
            "max_rank": step.board.max_exp(),
            "move": step.chosen.unwrap().name(),
            "valuation_type": (TYPES[place % 3]),
            "valuation": 0.25,
            "board": step.board.exps(),
            "search": {"used": false, "total_nodes": null, "of": [1, [2, {}]]},
        });
        if let Some(branches) = step.branches {
            let mut evs = Map::new();
            for direction in [Move::Up, Move::Left, Move::Right, Move::Down] {
                let legal = branches.legal & direction.bit() != 0;
                let value = legal.then(|| f64::from(branches.values[direction as usize]));
                evs.insert(direction.name().into(), value.map_or(Value::Null, Value::from));
            }
            row["branch_evs"] = Value::Object(evs);
        }
        out += &row.to_string();
        out += "\n";
    }
    out
}

fn meta_of(run: &Run, num_moves: usize) -> Value {
    let meta = run.meta();
    let mut out = json!({
        "seed": meta.seed.unwrap(),
        "game_index": 3,
        "steps_file": "logs/d6/a.jsonl.gz",
        "num_moves": num_moves,
        "score": meta.max_score,
        "max_tile": meta.highest_tile,
        "max_rank": meta.highest_tile.checked_ilog2().unwrap_or(0),
        "seconds": meta.elapsed_s,
    });
    if let Some(depth) = meta.engine.as_deref().and_then(|engine| engine.strip_prefix("macroxue-d")) {
        out["depth"] = depth.parse::<u32>().unwrap().into();
    }
    out
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    GzEncoder::new(text, Compression::default()).read_to_end(&mut out).unwrap();
    out
}

/// Plays a game by the rules until a move fills the board.
fn played(seed: u64) -> Run {
    let mut random = seed;
    let mut next = move |below: u32| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) as u32 % below
    };
    let mut spawn = |board: Board| {
        let mut empty = next(board.num_empty());
        let exp = if next(10) == 0 { 2 } else { 1 };
        Board::from_exps(board.exps().map(|old| match (old, empty) {
            (0, 0) => {
                empty = u32::MAX;
                exp
            }
            (0, _) => {
                empty -= 1;
                0
            }
            _ => old,
        }))
        .unwrap()
    };
    let mut board = spawn(Board(0));
    board = spawn(board);
    let mut steps = Run::builder(0);
    let mut preferred = 0;
    while !board.is_terminal() {
        preferred += 1;
        let legal = board.legal_moves();
        let mut choices = Move::ALL.into_iter().cycle().skip(preferred % 3);
        let chosen = choices.find(|chosen| legal & chosen.bit() != 0).unwrap();
        let values = std::array::from_fn(|branch| board.tile_sum() as f32 * 0.37 - 20.0 * branch as f32);
        steps.push(board, chosen, Some(Branches { values, legal }));
        board = spawn(board.slide(chosen));
    }
    let meta = RunMeta {
        elapsed_s: 1.5,
        max_score: board.score(),
        highest_tile: board.highest_tile(),
        engine: Some("macroxue-d6".into()),
        seed: Some(seed),
        raw_evs: true,
        ..RunMeta::default()
    };
    typed(steps.finish(meta, board).unwrap())
}

fn decode(meta: &Value, rows: impl Into<Vec<u8>>) -> Result<Run> {
    Macroxue::from_bytes(meta.to_string().as_bytes(), rows.into())?.decode()
}

/// Returns the error of a one-row log after a text replacement.
fn error_of(old: &str, new: &str) -> String {
    let mut steps = Run::builder(1);
    let values = [1.0, 2.0, 3.0, 0.0];
    steps.push(Board(0x1100_0000_0000_0000), Move::Left, Some(Branches { values, legal: 0b0111 }));
    let meta = RunMeta { seed: Some(7), highest_tile: 4, raw_evs: true, ..RunMeta::default() };
    let run = steps.finish(meta, None).unwrap();
    let rows = rows_of(&run);
    decode(&meta_of(&run, 1), rows.clone()).unwrap();
    assert!(rows.contains(old), "{rows}");
    decode(&meta_of(&run, 1), rows.replacen(old, new, 1)).unwrap_err().to_string()
}

fn any_run() -> impl Strategy<Value = Run> {
    let values = prop::array::uniform4(prop::num::f32::NORMAL | prop::num::f32::SUBNORMAL | prop::num::f32::ZERO);
    let branches = prop::option::of((values, 0u8..16).prop_map(|(values, legal)| Branches { values, legal }));
    let step = (any::<u64>(), 0u8..4, branches);
    let meta = (any::<u64>(), any::<u64>(), 0u32..18, prop::option::of(any::<u32>()), 0.0f32..1e30);
    (prop::collection::vec(step, 0..40), meta).prop_map(|(rows, meta)| {
        let mut steps = Run::builder(0);
        for (index, (board, chosen, branches)) in (0..).zip(rows) {
            let chosen = Move::from_index(chosen);
            steps.push_step(RunStep { index, board: Board(board).into(), chosen, branches }).unwrap();
        }
        let (seed, max_score, rank, depth, elapsed_s) = meta;
        let meta = RunMeta {
            start_unix_s: 0,
            elapsed_s,
            max_score,
            highest_tile: if rank == 0 { 0 } else { 1 << rank },
            engine: Some(depth.map_or("macroxue".into(), |depth| format!("macroxue-d{depth}"))),
            seed: Some(seed),
            raw_evs: true,
        };
        typed(steps.finish(meta, None).unwrap())
    })
}

proptest! {
    #[test]
    fn any_run_round_trips(run in any_run()) {
        let (meta, rows) = (meta_of(&run, run.num_steps()).to_string(), rows_of(&run));
        for (meta, rows) in [
            (meta.clone().into_bytes(), rows.clone().into_bytes()),
            (gzip(meta.as_bytes()), gzip(rows.as_bytes())),
        ] {
            let pair = Macroxue::from_bytes(&meta, rows).unwrap();
            prop_assert_eq!(&pair.decode().unwrap(), &run);
        }
    }

    #[test]
    fn any_bytes_never_panic(meta in any::<Vec<u8>>(), rows in any::<Vec<u8>>(), text in ".{0,200}") {
        for meta in [meta.as_slice(), text.as_bytes(), br#"{"seed":1,"num_moves":3,"score":4,"max_tile":4}"#] {
            if let Ok(pair) = Macroxue::from_bytes(meta, rows.clone()) {
                let _ = pair.decode();
            }
        }
        for bytes in [&rows, text.as_bytes()] {
            let _ = (is_meta(bytes), is_rows(bytes));
        }
    }
}

#[test]
fn final_boards_are_restored() {
    for seed in 0..20 {
        let run = played(seed);
        run.verify().unwrap();
        let mut meta = meta_of(&run, run.num_steps());
        meta["sum_tile"] = run.final_board().unwrap().tile_sum().into();
        let rows = rows_of(&run);
        assert_eq!(decode(&meta, rows.clone()).unwrap(), run);
        assert_eq!(decode(&meta, rows.replace('\n', "\r\n\r\n")).unwrap(), run);

        // The final board stays unknown if the sum is missing or matches no spawn, or if the largest tile
        // differs.
        for (key, value) in [("sum_tile", json!(1)), ("sum_tile", Value::Null), ("max_tile", json!(65536))] {
            let mut meta = meta.clone();
            meta[key] = value;
            meta["max_rank"] = Value::Null;
            let found = decode(&meta, rows.clone()).unwrap();
            assert_eq!((found.final_board(), found.num_steps()), (None, run.num_steps()));
        }
        // A game that stopped early.
        let short = rows.lines().take(5).map(|line| line.to_owned() + "\n").collect::<String>();
        meta["num_moves"] = 5.into();
        assert_eq!(decode(&meta, short).unwrap().final_board(), None);
    }
}

#[test]
fn missing_rows_are_an_error() {
    let run = played(1);
    let lines: Vec<String> = rows_of(&run).lines().map(|line| line.to_owned() + "\n").collect();
    for missing in [0, 1, lines.len() / 2, lines.len() - 1] {
        let mut rest = lines.clone();
        rest.remove(missing);
        let error = decode(&meta_of(&run, run.num_steps()), rest.concat()).unwrap_err().to_string();
        let (expected, found) = (lines.len(), rest.len());
        let expected = format!("number of steps: expected {expected} as in the meta file, found {found}");
        assert!(error.ends_with(&expected), "{error}");
    }
}

#[test]
fn errors_name_field_and_offset() {
    let board = "[1,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0]";
    let with = |cell: &str| board.replacen("1,0", &format!("1,{cell}"), 1);
    let tile = error_of(board, &with("17"));
    assert_eq!(tile, "byte 0 (step 0): board: expected exponents of at most 16 (tile 65536), found 17 in cell 2");
    assert!(error_of(board, &with("17")).ends_with("found 17 in cell 2"));
    assert!(error_of(board, &with("63")).ends_with("found 63 in cell 2"));
    assert!(error_of(board, &with("64")).ends_with("found 64 in cell 2"));
    assert!(error_of(board, &with("18446744073709551615")).ends_with("found 18446744073709551615 in cell 2"));
    for (old, new, end) in [
        (board, with("18446744073709551616").as_str(), "expected u64"),
        (board, &with("-1"), "invalid value: integer `-1`, expected u64"),
        (board, &with("1.0"), "invalid type: floating point `1.0`, expected u64"),
        (board, &with("0,0"), "trailing characters"),
        (board, "[1,2,3]", "invalid length 3, expected an array of length 16"),
        (board, "{}", "invalid type: map, expected an array of length 16"),
        (r#""board""#, r#""boards""#, "missing field `board`"),
        (r#""left","#, r#""back","#, "unknown variant `back`, expected one of `up`, `down`, `left`, `right`"),
        (r#""left","#, "2,", "expected value"),
        (r#""up":1.0"#, r#""up":1e39"#, "value of a branch: expected a number that is finite as f32, found 1e39"),
        (r#""up":1.0"#, r#""up":1e999"#, "number out of range"),
        (r#""up":1.0"#, r#""up":NaN"#, "expected value"),
        (r#""up":1.0"#, r#""up":"1""#, r#"invalid type: string "1", expected f64"#),
        (r#""up":1.0"#, r#""left":1.0"#, "duplicate field `left`"),
        (r#""up":1.0"#, r#""north":1.0"#, "missing field `up`"),
        (r#""seed":7"#, r#""seed":8"#, "seed: expected 7 as in the meta file, found 8"),
        (r#""seed":7"#, r#""seed":-7"#, "invalid value: integer `-7`, expected u64"),
        (r#""seed":7"#, r#""seed":7,"seed":7"#, "duplicate field `seed`"),
        (r#""step_index":0"#, r#""step_index":1"#, "expected below 1, the number of moves, found 1"),
        (r#""step_index":0"#, r#""step_index":4294967296"#, "expected u32"),
        (r#":"search""#, ":7", "invalid type: integer `7`, expected a string"),
        (r#":"search""#, &format!(":{:?}", "x".repeat(65)), "expected a name of at most 64 bytes, found 65 bytes"),
        ("}\n", "} {}\n", "trailing characters"),
        ("}\n", "\n", "EOF while parsing an object"),
        ("{", "[{", "found [{"),
    ] {
        let found = error_of(old, new);
        assert!(found.contains(end), "{new}: {found}");
        assert!(found.starts_with("byte ") && found.contains("(step 0)"), "{found}");
    }
}

#[test]
fn rows_without_a_valuation_type_have_none() {
    let run = played(6);
    let rows = rows_of(&run).replace(r#","valuation_type":"search""#, "");
    let found = decode(&meta_of(&run, run.num_steps()), rows).unwrap();
    let details = found.details().unwrap();
    assert_eq!(
        [0, 1, 2, 3].map(|step| details.get(step).valuation_type),
        [None, Some("tuple10"), Some("tuple11"), None]
    );

    // A pack has at most 256 valuation types.
    let rows: String = (0..257)
        .map(|step| {
            let board = [1; 16];
            let row = json!({
                "seed": 1, "step_index": step, "move": "up", "board": board, "valuation_type": format!("t{step}"),
            });
            format!("{row}\n")
        })
        .collect();
    let error = decode(&json!({"seed": 1, "num_moves": 257, "score": 2, "max_tile": 4}), rows).unwrap_err();
    assert_eq!(error.location().unwrap().step, Some(256));
    assert!(
        error.to_string().ends_with("valuation_type: expected at most 256 different names, found \"t256\""),
        "{error}"
    );
}

#[test]
fn rows_must_match_the_meta_file() {
    let run = played(2);
    let meta = meta_of(&run, run.num_steps());
    let rows = rows_of(&run);
    let lines: Vec<&str> = rows.lines().collect();
    let first_two = format!("{}\n{}\n", lines[0], lines[1]);
    let error = decode(&meta, first_two.clone()).unwrap_err().to_string();
    let offset = first_two.len();
    assert!(
        error.starts_with(&format!("byte {offset} (step 2): number of steps: expected {}", lines.len())),
        "{error}"
    );
    let again = [lines[0], lines[2], lines[2], lines[3]].join("\n");
    let offset = lines[0].len() + lines[2].len() + 2;
    let error = decode(&meta, again).unwrap_err().to_string();
    assert_eq!(error, format!("byte {offset} (step 2): step index: expected above 2, found 2"));
    assert!(decode(&meta, "").unwrap_err().to_string().ends_with("found 0"));

    let mut none = meta.clone();
    none["num_moves"] = 0.into();
    assert_eq!(decode(&none, "\n \n").unwrap().num_steps(), 0);
}

#[test]
fn meta_files_are_checked() {
    let good = json!({"seed": 1, "num_moves": 0, "score": 2, "max_tile": 4, "max_rank": 2, "seconds": 1.0, "x": [{}]});
    decode(&good, "").unwrap();
    for (key, value, end) in [
        ("max_rank", json!(3), "max_tile: expected the tile of max_rank 3, found 4"),
        ("max_rank", json!(4_000_000_000u32), "max_tile: expected the tile of max_rank 4000000000, found 4"),
        ("seconds", json!(1e300), "seconds: expected a number that is finite as f32, found 1e300"),
        ("num_moves", json!(1u64 << 32), "invalid value: integer `4294967296`, expected u32"),
        ("score", Value::Null, "invalid type: null, expected u64"),
        ("x", json!("x".repeat(lines::MAX_LINE)), "expected at most 65536 bytes of text, found a longer text"),
    ] {
        let mut meta = good.clone();
        meta[key] = value;
        let found = decode(&meta, "").unwrap_err().to_string();
        assert!(found.contains(end), "{found}");
    }
    for text in ["", "[]", "[1,2,3,4,5,6,7,8,9,10]", "{", "{}", "\"seed\"", "{\"seed\":1,\"seed\":1}"] {
        assert!(Macroxue::from_bytes(text.as_bytes(), Vec::new()).is_err(), "{text}");
    }
    let pretty = "{\n \"seed\": 1,\n \"score\": ?\n}";
    let error = Macroxue::from_bytes(pretty.as_bytes(), Vec::new()).unwrap_err();
    assert_eq!(error.location().unwrap().offset, Some(pretty.find('?').unwrap() as u64));
}

#[test]
fn deep_and_long_rows_are_errors() {
    for row in ["[".repeat(60_000), r#"{"a":"#.repeat(12_000), format!("{{\"a\":{}", "[".repeat(60_000))] {
        decode(&json!({"seed": 1, "num_moves": 1, "score": 2, "max_tile": 4}), row).unwrap_err();
    }
    let padded = |len: usize| format!("{}\"x\":\"{}\"}}", &ROW[..ROW.len() - 1].replace("]", "],"), "x".repeat(len));
    const ROW: &str = r#"{"seed":1,"step_index":0,"move":"up","board":[0,1,0,0,1,0,0,0,0,0,0,0,0,0,0,0]}"#;
    let meta = json!({"seed": 1, "num_moves": 1, "score": 2, "max_tile": 4});
    let longest = lines::MAX_LINE - padded(0).len();
    decode(&meta, padded(longest)).unwrap();
    let error = decode(&meta, padded(longest + 1)).unwrap_err();
    assert_eq!(error.to_string(), "byte 0 (step 0): line: expected at most 65536 bytes, found a longer line");
}

#[test]
fn every_truncation_and_bit_flip_is_an_error_or_the_same_run() {
    let run = played(3);
    let mut meta_text = meta_of(&run, run.num_steps());
    meta_text["sum_tile"] = run.final_board().unwrap().tile_sum().into();
    let run = decode(&meta_text, rows_of(&run)).unwrap();
    let rows: String = rows_of(&run).lines().take(12).map(|line| line.to_owned() + "\n").collect();
    meta_text["num_moves"] = 12.into();
    let expected = decode(&meta_text, rows.clone()).unwrap();
    let (meta, rows) = (gzip(meta_text.to_string().as_bytes()), gzip(rows.as_bytes()));
    let decode = |meta: &[u8], rows: &[u8]| Macroxue::from_bytes(meta, rows.to_vec()).and_then(|pair| pair.decode());
    assert_eq!(decode(&meta, &rows).unwrap(), expected);

    let mut without_effect = std::collections::BTreeSet::new();
    for (of_meta, file) in [(true, &meta), (false, &rows)] {
        let with = |changed: &[u8]| if of_meta { decode(changed, &rows) } else { decode(&meta, changed) };
        for len in 0..file.len() {
            with(&file[..len]).unwrap_err();
        }
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut changed = file.clone();
                changed[at] ^= 1 << bit;
                match with(&changed) {
                    Ok(run) => {
                        assert_eq!(run, expected);
                        without_effect.insert((at, bit));
                    }
                    Err(error) => {
                        assert!(matches!(error.kind_name(), "decode"), "{error}");
                        assert!(error.location().unwrap().offset.is_some(), "{error}");
                    }
                }
            }
        }
    }
    // Bits that the checksum does not cover: header flags, time, level and system; the bits after the last
    // symbol; and matches that may point elsewhere.
    let header = without_effect.iter().filter(|&&(at, _)| (3..10).contains(&at)).count();
    assert!(header > 40 && without_effect.len() < header + 24, "{without_effect:?}");
}

#[test]
fn memory_stays_bounded_for_gzip_bombs() {
    let zeros = |byte: u8, len: u64| {
        let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
        let mut encoder = DeflateEncoder::new(std::io::repeat(byte).take(len), Compression::best());
        encoder.read_to_end(&mut out).unwrap();
        out
    };
    let meta = json!({"seed": 1, "num_moves": u32::MAX, "score": 2, "max_tile": 4});
    for (byte, end) in [(b' ', "a longer line"), (b'\n', "at most 65536 bytes of them"), (b'{', "a longer line")] {
        let error = decode(&meta, zeros(byte, 64 << 20)).unwrap_err().to_string();
        assert!(error.contains(end), "{error}");
        assert!(Macroxue::from_bytes(&zeros(byte, 64 << 20), Vec::new()).is_err());
    }
    // Many gzip members without content.
    decode(&meta, gzip(b"").repeat(100_000)).unwrap_err();
    // The log declares more steps than files of that size can hold.
    let num_moves = FREE_STEPS + 100_000;
    let row =
        |index| format!("{{\"seed\":1,\"step_index\":{index},\"move\":\"up\",\"board\":[{}]}}\n", ["1"; 16].join(","));
    let rows = gzip((0..num_moves).map(row).collect::<String>().as_bytes());
    let most = (meta.to_string().len() + rows.len()) / 16 + FREE_STEPS;
    assert!(most < num_moves);
    let error = decode(&meta, rows).unwrap_err();
    assert_eq!(error.location().unwrap().step, Some(most as u64));
    assert!(error.to_string().contains(&format!("number of steps: expected at most {most} in files of ")), "{error}");
}

#[test]
fn opens_a_log_by_its_meta_file() {
    let folder = tempfile::tempdir().unwrap();
    let run = played(4);
    let mut meta = meta_of(&run, run.num_steps());
    meta["sum_tile"] = run.final_board().unwrap().tile_sum().into();
    let rows = rows_of(&run);
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let path = write("g.meta.json", meta.to_string().as_bytes());
    let error = Macroxue::open(&path).unwrap_err();
    assert_eq!(error.path(), Some(path.as_path()));
    let end = "file of rows: expected g.jsonl.gz or g.jsonl beside it, found no such file";
    assert!(error.to_string().ends_with(end), "{error}");

    // Each file may be gzipped. Its name does not decide.
    for (name, bytes) in [
        ("g.jsonl", rows.clone().into_bytes()),
        ("g.jsonl.gz", gzip(rows.as_bytes())),
        ("g.jsonl.gz", rows.clone().into_bytes()),
    ] {
        let rows_path = write(name, &bytes);
        let pair = Macroxue::open(&path).unwrap();
        assert!(matches!(&pair.rows, StoredRows::File(path) if *path == rows_path));
        assert_eq!(pair.decode().unwrap(), run);
        assert_eq!((pair.num_runs(), pair.num_bytes(1)), (1, 0));
        assert_eq!(pair.num_bytes(0), meta.to_string().len() as u64 + bytes.len() as u64);
        assert!(matches!(pair.read(0).unwrap(), SourceRun::Run(found) if found == run));
        assert_eq!(pair.read(1).unwrap_err().kind_name(), "argument");
    }
    write("h.meta.json.gz", &gzip(meta.to_string().as_bytes()));
    write("h.jsonl", rows.as_bytes());
    assert_eq!(Macroxue::open(folder.path().join("h.meta.json.gz")).unwrap().decode().unwrap(), run);

    let rows_path = write("g.jsonl.gz", b"{}");
    let error = Macroxue::open(&path).unwrap().read(0).unwrap_err();
    let location = error.location().unwrap();
    assert_eq!((error.path(), location.run, location.step), (Some(rows_path.as_path()), None, Some(0)));

    for (rows, meta) in [("g.jsonl.gz", "g.meta.json"), ("h.jsonl", "h.meta.json.gz"), ("x.jsonl", "x.meta.json")] {
        assert_eq!(super::meta_of(&folder.path().join(rows)), folder.path().join(meta));
    }
    assert_eq!(Macroxue::open(folder.path()).unwrap_err().kind_name(), "decode");
    assert_eq!(Macroxue::open(folder.path().join("none")).unwrap_err().kind_name(), "io");
}

#[test]
fn detects_logs_by_content() {
    let run = played(5);
    let (meta, rows) = (meta_of(&run, run.num_steps()).to_string(), rows_of(&run));
    for prefix in [meta.clone().into_bytes(), gzip(meta.as_bytes())] {
        assert!(is_meta(&prefix) && !is_rows(&prefix));
    }
    let zipped = gzip(rows.as_bytes());
    for prefix in [rows.as_bytes(), &rows.as_bytes()[..4096], &zipped, &zipped[..1024]] {
        assert!(is_rows(prefix) && !is_meta(prefix));
    }
    for other in [
        "",
        "{",
        "A2T1",
        "\u{1f}\u{8b}",
        r#"{"run_idx":0,"pre_board":[0],"chosen":"DOWN","branches":[]}"#,
        r#"{"model_sha": "0", "num_moves": 3}"#,
        r#""num_moves": 3, "game_index": 4"#,
        r#"["branch_evs","board"]"#,
    ] {
        assert!(!is_meta(other.as_bytes()) && !is_rows(other.as_bytes()), "{other}");
    }
    assert!(!is_rows(&[0x1f, 0x8b]) && !is_meta(&gzip(b"{}")));
}
