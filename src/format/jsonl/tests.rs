use super::*;
use crate::run::{Branches, RunMeta};
use proptest::prelude::*;
use serde_json::Value;

fn sample() -> Run {
    let mut steps = Run::builder(3);
    let best = 1.0 - f32::EPSILON;
    let branches = Branches { values: [best, best, 0.25, 0.0], legal: 0b0111 };
    steps.push(Board(0x0123_4567_89ab_cdef), Move::Down, Some(branches));
    steps.push(Board(0xffff_ffff_ffff_ffff), Move::Right, None);
    let branches = Branches { values: [f32::NAN, 1e-7, f32::INFINITY, 1.0 - 1e-5], legal: 0b1111 };
    steps.push(Board(0), Move::Right, Some(branches));
    let meta =
        RunMeta { elapsed_s: 0.1, max_score: 7, highest_tile: 4, engine: Some("a\"b".into()), ..RunMeta::default() };
    steps.finish(meta, Board(9)).unwrap()
}

fn steps(run: &Run, compact: bool) -> String {
    String::from_utf8(lines_of(run, 2, 0xabc, true, compact).unwrap()).unwrap()
}

#[test]
fn step_lines_match_the_older_tool() {
    let illegal = r#"{"legal":false,"value":0.0}"#;
    let begin = r#"{"run_idx":2,"run_uuid":"a2r-00000abc-00000002","step_idx":"#;
    let expected = [
        format!(
            r#"{begin}0,"pre_board":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15],"chosen":"DOWN","branches":[{},{},{},{illegal}]}}"#,
            r#"{"legal":true,"value":0.9999999}"#, r#"{"legal":true,"value":1.0}"#, r#"{"legal":true,"value":0.25}"#
        ),
        format!(
            r#"{begin}1,"pre_board":[15,15,15,15,15,15,15,15,15,15,15,15,15,15,15,15],"chosen":"RIGHT","branches":[{illegal},{illegal},{illegal},{}]}}"#,
            r#"{"legal":true,"value":1.0}"#
        ),
        format!(
            r#"{begin}2,"pre_board":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"chosen":"RIGHT","branches":[{},{},{},{}]}}"#,
            r#"{"legal":true,"value":null}"#,
            r#"{"legal":true,"value":1e-7}"#,
            r#"{"legal":true,"value":null}"#,
            r#"{"legal":true,"value":0.99999}"#
        ),
    ];
    assert_eq!(steps(&sample(), false).lines().collect::<Vec<_>>(), expected);
}

#[test]
fn compact_step_lines_hold_numbers_and_nulls() {
    let begin = r#"{"run_idx":2,"run_uuid":"a2r-00000abc-00000002","step_idx":"#;
    let expected = [
        format!(
            r#"{begin}0,"pre_board":81985529216486895,"chosen":"DOWN","branches":[0.9999999,0.9999999,0.25,null]}}"#
        ),
        format!(r#"{begin}1,"pre_board":18446744073709551615,"chosen":"RIGHT","branches":[null,null,null,null]}}"#),
        format!(r#"{begin}2,"pre_board":0,"chosen":"RIGHT","branches":[null,1e-7,null,0.99999]}}"#),
    ];
    assert_eq!(steps(&sample(), true).lines().collect::<Vec<_>>(), expected);
}

#[test]
fn run_lines_match_the_older_tool() {
    let rest = concat!(
        r#""steps":3,"start_unix_s":0,"elapsed_s":0.1,"max_score":7,"highest_tile":4,"final_board":9,"#,
        r#""states":[81985529216486895,18446744073709551615,0,9],"moves":["DOWN","RIGHT","RIGHT"]}"#,
    );
    let line = |compact| String::from_utf8(lines_of(&sample(), 2, 0xabc, false, compact).unwrap()).unwrap();
    assert_eq!(line(false), format!("{{\"run_idx\":2,{rest}\n"));
    let expected = r#"{"run_idx":2,"run_uuid":"a2r-00000abc-00000002","engine":"a\"b","#;
    assert_eq!(line(true), format!("{expected}{rest}\n"));
}

#[test]
fn an_incomplete_run_has_step_lines_but_no_run_line() {
    let mut builder = Run::builder(1);
    builder.push_step(crate::run::RunStep { index: 7, board: Board(1).into(), chosen: None, branches: None }).unwrap();
    let run = builder.finish(RunMeta::default(), None).unwrap();
    let value: Value = serde_json::from_str(&steps(&run, false)).unwrap();
    assert_eq!((&value["step_idx"], &value["chosen"]), (&Value::from(7), &Value::Null));
    assert!(lines_of(&run, 0, 0, false, false).is_err());
}

proptest! {
    #[test]
    fn a_json_parser_reads_the_lines(
        board in any::<u64>(),
        values in any::<[f32; 4]>(),
        legal in 0..16u8,
        chosen in 0..4usize,
        has_branches in any::<bool>(),
    ) {
        let mut builder = Run::builder(1);
        builder.push(Board(board), Move::ALL[chosen], has_branches.then_some(Branches { values, legal }));
        let run = builder.finish(RunMeta::default(), Board(0)).unwrap();
        let plain: Value = serde_json::from_str(&steps(&run, false)).unwrap();
        let compact: Value = serde_json::from_str(&steps(&run, true)).unwrap();
        prop_assert_eq!(&plain["pre_board"], &serde_json::json!(Board(board).exps()));
        prop_assert_eq!(&compact["pre_board"], &Value::from(board));
        prop_assert_eq!(&plain["chosen"], &Value::from(Move::ALL[chosen].name().to_uppercase()));
        for branch in 0..4 {
            let is_legal = has_branches && legal >> branch & 1 == 1;
            let stored = is_legal.then_some(values[branch]).filter(|value| value.is_finite());
            prop_assert_eq!(compact["branches"][branch].as_f64().map(|value| value as f32), stored);
            let is_chosen = branch == chosen;
            prop_assert_eq!(&plain["branches"][branch]["legal"], &Value::from(is_legal || is_chosen && !has_branches));
            let expected = match stored {
                _ if is_chosen && (!has_branches || is_legal && values[branch] > BEST) => Some(1.0),
                None if is_legal => None,
                None => Some(0.0),
                stored => stored,
            };
            prop_assert_eq!(plain["branches"][branch]["value"].as_f64().map(|value| value as f32), expected);
        }
    }
}
