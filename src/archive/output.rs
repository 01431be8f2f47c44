//! Encoded row groups → published files, on a thread of its own.

use super::TableName;
use super::commit::DataFile;
use super::storage::Storage;
use super::writer::{EncodedRowGroup, TableWriter};
use crate::error::{Error, Result};
use crate::progress::{Progress, check};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Row groups that may wait for the thread that writes.
const QUEUE: usize = 2;

/// The files of a transaction.
pub(super) struct Output<'a> {
    pub(super) storage: &'a Storage,
    pub(super) txn: &'a str,
    /// Rows from which a file is full.
    pub(super) file_rows: u64,
}

/// What the writing thread is sent. If it is sent no `End`, the work has failed and nothing is to remain.
enum Message {
    RowGroup(TableName, EncodedRowGroup),
    End,
}

/// Where the work sends what it has encoded.
pub(super) struct Sender(SyncSender<Message>);

impl Sender {
    pub(super) fn send(&self, table: TableName, group: EncodedRowGroup) -> Result<()> {
        self.0.send(Message::RowGroup(table, group)).map_err(|_| closed())
    }
}

/// The writer's own error is the cause, and is what the caller is told.
fn closed() -> Error {
    Error::other("the thread that writes has ended")
}

impl Output<'_> {
    /// Writes what `work` sends, while it works. When anything fails, nothing remains.
    pub(super) fn write<T>(
        &self,
        progress: &dyn Progress,
        work: impl FnOnce(&Sender) -> Result<T>,
    ) -> Result<(T, Vec<DataFile>)> {
        let mut files = Vec::new();
        let outcome = std::thread::scope(|scope| {
            let (sender, receiver) = sync_channel(QUEUE);
            let mut open = Open { output: self, files: &mut files, steps: None, runs: None };
            let writing = scope.spawn(move || open.receive(&receiver, progress));
            let sender = Sender(sender);
            let worked = work(&sender);
            if worked.is_ok() {
                // Nobody listens if writing has failed, which is seen below.
                let _ = sender.0.send(Message::End);
            }
            drop(sender);
            let written = writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            written.and(worked)
        });
        match outcome {
            Ok(value) => Ok((value, files)),
            Err(error) => {
                // No commit was attempted, so these are nobody's; what cannot be removed is left to `expire`.
                files.iter().for_each(|file| drop(self.storage.remove(&file.path)));
                Err(error)
            }
        }
    }
}

/// The files that are being written, and those that are.
struct Open<'a> {
    output: &'a Output<'a>,
    files: &'a mut Vec<DataFile>,
    steps: Option<TableWriter>,
    runs: Option<TableWriter>,
}

impl Open<'_> {
    fn receive(&mut self, receiver: &Receiver<Message>, progress: &dyn Progress) -> Result<()> {
        loop {
            match receiver.recv() {
                Ok(Message::RowGroup(table, group)) => {
                    check(progress)?;
                    self.append(table, group, progress)?;
                }
                Ok(Message::End) => break,
                Err(_) => return Ok(()),
            }
        }
        for writer in [self.steps.take(), self.runs.take()].into_iter().flatten() {
            self.files.extend(writer.finish(progress)?);
        }
        Ok(())
    }

    fn append(&mut self, table: TableName, group: EncodedRowGroup, progress: &dyn Progress) -> Result<()> {
        let slot = match table {
            TableName::Steps => &mut self.steps,
            TableName::Runs => &mut self.runs,
        };
        let mut writer = match slot.take() {
            Some(writer) => writer,
            None => TableWriter::new(self.output.storage, table, self.output.txn)?,
        };
        writer.append(group)?;
        if writer.num_rows() >= self.output.file_rows {
            self.files.extend(writer.finish(progress)?);
        } else {
            *slot = Some(writer);
        }
        Ok(())
    }
}
