//! The two sides of `sql --sandbox`: the parent, which enforces the limits, and the child, which runs the query.

use super::exit::UsageError;
use super::open::{check_outside, check_overwrite, local_folder};
use super::progress::Interrupt;
use super::query_args::{OutputFormat, QueryArgs, SqlArgs};
use super::sandbox::{self, SandboxJob, SandboxLimits};
use crate::QueryOptions;
use crate::publish::Output;
use anyhow::Result;
use clap::ValueEnum;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

/// The default limits: memory in bytes, time, and bytes of temporary files.
const MEMORY: u64 = 2 << 30;
const TIME: Duration = Duration::from_secs(60);
const DISK: u64 = 8 << 30;

/// Confines this process, the child of `parent`, and sets the query's limits. Call it before the process starts a thread.
pub(super) fn confine_child(args: &SqlArgs, parent: u32, options: &mut QueryOptions, quiet: bool) -> Result<()> {
    let limits = limits(&args.run);
    let readable: Option<Vec<PathBuf>> = match local_folder(&args.archive) {
        Some(folder) => {
            let tables = args.run.tables()?.into_iter().map(|(_, path)| path.to_path_buf());
            Some(std::iter::once(folder).chain(tables).collect())
        }
        None => None,
    };
    let unrestricted = sandbox::confine(&limits, parent, readable.as_deref())?;
    if let Some(error) = unrestricted.filter(|_| !quiet) {
        eprintln!("a2store: --sandbox: the query's access to files is not restricted: {error}");
    }
    // The engine accounts for about half of the memory of its process. The parent enforces the time limit.
    options.memory_limit = Some((limits.memory / 2).max(QueryOptions::MIN_MEMORY_BYTES));
    (options.spill_limit, options.time_limit) = (Some(limits.disk), None);
    Ok(())
}

/// Starts the child, enforces its limits, and returns its exit status.
pub(super) fn supervise_child(args: &SqlArgs, program: Option<&[OsString]>, quiet: bool) -> Result<u8> {
    let program = match program {
        Some(program) => program.to_vec(),
        None => vec![std::env::current_exe()?.into_os_string()],
    };
    let interrupt = Interrupt::new()?;
    let (limits, child_args) = (limits(&args.run), child_args(args, args.run.output_format()?, quiet));
    let is_remote = local_folder(&args.archive).is_none();
    let job = SandboxJob { program: &program, args: &child_args, is_remote, limits: &limits };
    match &args.run.output {
        Some(path) if !args.run.explain => {
            check_outside(path, &args.archive)?;
            if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("arrow")) {
                let expected = "--sandbox: expected -o FILE.arrows, because the child writes the stream format";
                anyhow::bail!(UsageError(format!("{expected}, found {}", path.display())));
            }
            check_overwrite(path, args.run.overwrite)?;
            let output = Output::create(path)?;
            let status = sandbox::supervise(&job, output.file().try_clone()?.into(), &interrupt)?;
            if status == 0 {
                output.publish()?;
            }
            Ok(status)
        }
        _ => sandbox::supervise(&job, Stdio::inherit(), &interrupt),
    }
}

fn limits(args: &QueryArgs) -> SandboxLimits {
    SandboxLimits {
        memory: args.memory_limit.unwrap_or(MEMORY),
        time: args.time_limit.unwrap_or(TIME),
        disk: args.spill_limit.unwrap_or(DISK),
    }
}

/// Builds the child's arguments from the parsed ones, because this process may be Python, with other arguments.
///
/// `--output` is left out: the parent opens the file and passes it as standard output.
fn child_args(args: &SqlArgs, format: OutputFormat, quiet: bool) -> Vec<OsString> {
    let SqlArgs { archive, query, run, sandbox: _, sandboxed: _ } = args;
    // This pattern names every option, so a new one fails to compile until it is handled here.
    let QueryArgs {
        param,
        table,
        format: _,
        _json: _,
        output: _,
        overwrite: _,
        max_rows,
        explain,
        version,
        checksums,
        memory_limit: _,
        spill_limit: _,
        time_limit: _,
        row_limit,
        byte_limit,
    } = run;
    let SandboxLimits { memory, time, disk } = limits(run);
    let time = humantime::format_duration(time);
    let format = format.to_possible_value().map(|value| format!("--format={}", value.get_name()));
    let mut list = vec![
        "sql".to_owned(),
        "--sandbox".to_owned(),
        format!("--sandboxed={}", std::process::id()),
        format!("--memory-limit={memory}"),
        format!("--time-limit={time}"),
        format!("--spill-limit={disk}"),
        format!("--max-rows={max_rows}"),
    ];
    list.extend(row_limit.map(|rows| format!("--row-limit={rows}")));
    list.extend(byte_limit.map(|bytes| format!("--byte-limit={bytes}")));
    list.extend(table.iter().map(|table| format!("--table={table}")));
    list.extend(format);
    list.extend(param.iter().map(|param| format!("--param={param}")));
    list.extend(version.map(|version| format!("--version={version}")));
    list.extend(checksums.map(|checksums| format!("--checksums={checksums}")));
    list.extend(explain.then(|| "--explain".to_owned()));
    list.extend(quiet.then(|| "--quiet".to_owned()));
    // The child cannot know whether its standard output is the file of `--output`.
    let has_colors = console::colors_enabled() && run.output.is_none();
    list.push(format!("--color={}", if has_colors { "always" } else { "never" }));
    let mut list: Vec<OsString> = list.into_iter().map(OsString::from).collect();
    // After `--`, an argument that begins with a dash is not an option.
    list.extend(["--".into(), archive.into(), query.into()]);
    list
}

#[cfg(test)]
mod tests {
    use super::super::args::{StoreCli, StoreCommand};
    use super::*;
    use clap::Parser;

    fn parse(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> SqlArgs {
        match StoreCli::try_parse_from(args).unwrap().command {
            StoreCommand::Sql(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_child_gets_the_same_arguments() {
        for text in [
            "a2store sql --sandbox --memory-limit 2GiB --time-limit 60s --spill-limit 8GiB games.a2 VALUES",
            "a2store sql --sandbox --memory-limit 3GiB --time-limit 90s --spill-limit 7 --row-limit 9 --byte-limit 8 \
             --table a=b.parquet --table c=d=e --format csv -o x --max-rows 3 \
             --explain --version 4 --checksums=false -p a==b -p b=--sandbox -- -games.a2 --explain",
        ] {
            let mut given = parse(text.split_whitespace());
            let format = given.run.output_format().unwrap();
            let child = child_args(&given, format, true);
            let again = parse([OsString::from("a2store")].into_iter().chain(child));
            // These options differ on purpose.
            given.sandboxed = Some(std::process::id());
            given.run.output = None;
            given.run.format = Some(format);
            assert_eq!(format!("{again:?}"), format!("{given:?}"));
        }
    }
}
