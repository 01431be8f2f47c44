//! A writer thread for data files: it takes encoded row groups and publishes files.

use super::writer::{EncodedRowGroup, TableWriter};
use crate::archive::manifest::Manifest;
use crate::archive::manifest::data_file::DataFile;
use crate::archive::storage::Storage;
use crate::archive::table_name::TableName;
use crate::error::{Error, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::publish::Staged;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The number of row groups that may wait for the writer thread.
const QUEUE: usize = 2;

/// The data files of one transaction.
pub(in crate::archive) struct TransactionFiles<'a> {
    pub(in crate::archive) storage: &'a Storage,
    /// The version that the transaction makes.
    pub(in crate::archive) version: &'a Manifest,
    /// The model of the rows of `annotations`; `None` for the other tables.
    pub(in crate::archive) model: Option<&'a str>,
    /// The minimum number of rows of a full file.
    pub(in crate::archive) file_rows: u64,
}

/// A message to the writer thread: a row group, or `None`, which ends the open files. If the work fails, all files are
/// removed.
type WriterMessage = Option<(TableName, EncodedRowGroup)>;

/// The sending end of the channel to the writer thread.
pub(in crate::archive) struct RowGroupSender(SyncSender<WriterMessage>);

impl RowGroupSender {
    pub(in crate::archive) fn send(&self, table: TableName, group: EncodedRowGroup) -> Result<()> {
        self.0.send(Some((table, group))).map_err(|_| closed())
    }

    /// Lets the next row groups begin new files.
    pub(in crate::archive) fn end_files(&self) -> Result<()> {
        self.0.send(None).map_err(|_| closed())
    }
}

/// Returns the error of a closed channel. The caller gets the writer's own error instead.
fn closed() -> Error {
    Error::other("the writer thread has ended")
}

impl TransactionFiles<'_> {
    /// Writes the row groups that `work` sends, while `work` runs. If anything fails, removes all files.
    pub(in crate::archive) fn write<T>(
        &self,
        cancel: &CancellationToken,
        work: impl FnOnce(&RowGroupSender) -> Result<T>,
    ) -> Result<(T, Vec<DataFile>)> {
        let mut files = Vec::new();
        let outcome = std::thread::scope(|scope| {
            let (sender, receiver) = sync_channel(QUEUE);
            let mut open = OpenFiles { transaction: self, files: &mut files, unfinished: BTreeMap::new() };
            let writing = scope.spawn(move || open.receive(&receiver, cancel));
            let sender = RowGroupSender(sender);
            let worked = work(&sender);
            if worked.is_ok() {
                // This fails if the writer thread has failed, which `written` shows.
                sender.end_files().ok();
            }
            drop(sender);
            let written = writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            written.and(worked)
        });
        match outcome {
            Ok(value) => Ok((value, files)),
            Err(error) => {
                // No manifest names these files. `expire` removes those that cannot be removed here.
                files.iter().for_each(|file| drop(self.storage.remove(&file.path)));
                Err(error)
            }
        }
    }
}

/// The unfinished and the finished files.
struct OpenFiles<'a> {
    transaction: &'a TransactionFiles<'a>,
    files: &'a mut Vec<DataFile>,
    unfinished: BTreeMap<TableName, TableWriter>,
}

impl OpenFiles<'_> {
    fn receive(&mut self, receiver: &Receiver<WriterMessage>, cancel: &CancellationToken) -> Result<()> {
        for message in receiver {
            match message {
                Some((table, group)) => {
                    cancel.check()?;
                    self.append(table, group, cancel)?;
                }
                None => self.finish(cancel)?,
            }
        }
        Ok(())
    }

    /// Finishes and publishes the unfinished files.
    fn finish(&mut self, cancel: &CancellationToken) -> Result<()> {
        let rest = std::mem::take(&mut self.unfinished).into_values().rev();
        self.publish(rest.collect(), cancel)
    }

    /// Publishes files. No manifest names them yet.
    fn publish(&mut self, writers: Vec<TableWriter>, cancel: &CancellationToken) -> Result<()> {
        let finished = writers.into_iter().map(TableWriter::finish).collect::<Result<Vec<_>>>()?;
        let (staged, files): (Vec<Staged>, Vec<DataFile>) = finished.into_iter().unzip();
        cancel.check()?;
        let named = staged.into_iter().zip(files.iter().map(|file| &*file.path)).collect();
        let published = self.transaction.storage.put_files(named, cancel);
        let mut outcome = Ok(());
        for (file, published) in files.into_iter().zip(published) {
            match published {
                Ok(()) => self.files.push(file),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    fn append(&mut self, table: TableName, group: EncodedRowGroup, cancel: &CancellationToken) -> Result<()> {
        let mut writer = match self.unfinished.remove(&table) {
            Some(writer) => writer,
            None => {
                let TransactionFiles { storage, version, model, .. } = *self.transaction;
                TableWriter::new(storage, table, version, model)?
            }
        };
        writer.append(group)?;
        if writer.num_rows() >= self.transaction.file_rows {
            self.publish(vec![writer], cancel)?;
        } else {
            self.unfinished.insert(table, writer);
        }
        Ok(())
    }
}
