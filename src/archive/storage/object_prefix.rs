//! Archives on S3, Google Cloud Storage and Azure.
//!
//! Credentials and endpoints are read from the environment variables of each service (`AWS_ACCESS_KEY_ID`,
//! `AWS_ENDPOINT_URL`, `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_NAME`, …), and then from the caller's
//! [`StorageOptions`].

use super::backend::{Backend, ListedFile};
use super::storage_options::StorageOptions;
use crate::error::{Error, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::process::{ProcessId, lock};
use crate::system::publish::{Published, Staged};
use crate::system::runtime::block_on;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path as StorePath;
use object_store::prefix::PrefixStore;
use object_store::{
    Error as StoreError, ObjectMeta, ObjectStore, ObjectStoreExt, ObjectStoreScheme, PutMode, PutPayload,
    WriteMultipart,
};
use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use url::Url;

/// The maximum number of concurrent requests.
const CONCURRENCY: usize = 32;
/// The number of bytes in a part of an upload. S3 allows 10,000 parts.
const PART_BYTES: usize = 16 << 20;

/// A prefix of an object store.
pub(super) struct ObjectPrefix {
    /// The URL.
    root: PathBuf,
    options: StorageOptions,
    /// The connection of one process. A forked child makes a new one.
    connection: Mutex<Option<(ProcessId, Arc<dyn ObjectStore>)>>,
}

impl fmt::Debug for ObjectPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectPrefix").field(&self.root).finish()
    }
}

impl ObjectPrefix {
    /// Returns the prefix that a URL names, without accessing it.
    pub(super) fn new(url: &str, options: &StorageOptions) -> Result<ObjectPrefix> {
        let root = url.trim_end_matches('/').into();
        let prefix = ObjectPrefix { root, options: options.clone(), connection: Mutex::default() };
        prefix.store()?;
        Ok(prefix)
    }

    /// Runs requests on the threads of the runtime. Errors carry the URL of `path`.
    fn request<T, F>(&self, path: &str, requests: impl FnOnce(Arc<dyn ObjectStore>, StorePath) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let future = requests(self.store()?, StorePath::from(path));
        let url = self.path(path);
        block_on(async move { future.await.map_err(|error| store_error(&url, error)) })
    }

    /// Uploads a local file in parts, and checks its length in the store.
    fn upload(&self, from: &Path, path: &str, cancel: &CancellationToken) -> Result<()> {
        let as_io = |source| Error::io(from, source);
        let file = File::open(from).map_err(as_io)?;
        let length = file.metadata().map_err(as_io)?.len();
        let mut upload: Option<WriteMultipart> = None;
        loop {
            cancel.check()?;
            let mut part = Vec::with_capacity(PART_BYTES.min(length as usize));
            (&file).take(PART_BYTES as u64).read_to_end(&mut part).map_err(as_io)?;
            let last = part.len() < PART_BYTES;
            upload = self.request(path, |store, path| async move {
                let mut upload = match upload {
                    Some(upload) => upload,
                    None if last => return store.put(&path, part.into()).await.map(|_| None),
                    None => WriteMultipart::new_with_chunk_size(store.put_multipart(&path).await?, PART_BYTES),
                };
                upload.put(part.into());
                if last {
                    return upload.finish().await.map(|_| None);
                }
                upload.wait_for_capacity(4).await?;
                Ok(Some(upload))
            })?;
            if last {
                break;
            }
        }
        let found = self.request(path, |store, path| async move { store.head(&path).await })?.size;
        if found != length {
            let message = format!("{length} bytes were uploaded, but the store has {found}");
            return Err(Error::io(self.path(path), io::Error::other(message)));
        }
        Ok(())
    }
}

impl Backend for ObjectPrefix {
    fn root(&self) -> &Path {
        &self.root
    }

    fn options(&self) -> StorageOptions {
        self.options.clone()
    }

    fn store(&self) -> Result<Arc<dyn ObjectStore>> {
        let mut slot = lock(&self.connection);
        match &*slot {
            Some((process, store)) if process.is_current() => Ok(Arc::clone(store)),
            _ => {
                let store = connect(self.root.to_str().unwrap_or_default(), &self.options)?;
                *slot = Some((ProcessId::current(), Arc::clone(&store)));
                Ok(store)
            }
        }
    }

    fn read(&self, path: &str) -> Result<Option<Bytes>> {
        self.request(path, read)
    }

    fn read_all(&self, paths: &[String]) -> Result<Vec<Result<Option<Bytes>>>> {
        let store = self.store()?;
        let read_one = |path: &String| {
            let (store, url) = (Arc::clone(&store), self.path(path));
            let read = read(store, StorePath::from(&**path));
            async move { read.await.map_err(|error| store_error(&url, error)) }
        };
        let reads: Vec<_> = paths.iter().map(read_one).collect();
        block_on(async move { Ok(futures::stream::iter(reads).buffered(CONCURRENCY).collect().await) })
    }

    /// Downloads the file to a temporary file without a name.
    fn open(&self, path: &str) -> Result<Option<File>> {
        let as_io = |source| Error::io(std::env::temp_dir(), source);
        let mut copy = tempfile::tempfile().map_err(as_io)?;
        let copied = self.request(path, |store, path| async move {
            let Some(object) = existing(store.get(&path).await)? else { return Ok(Ok(None)) };
            let mut stream = object.into_stream();
            while let Some(bytes) = stream.try_next().await? {
                if let Err(error) = copy.write_all(&bytes) {
                    return Ok(Err(error));
                }
            }
            Ok(copy.rewind().map(|()| Some(copy)))
        })?;
        copied.map_err(as_io)
    }

    fn list(&self, folder: &str) -> Result<Vec<ListedFile>> {
        self.request(folder, |store, folder| async move {
            store.list(Some(&folder)).try_filter_map(async |object| Ok(listed(&object))).try_collect().await
        })
    }

    fn first_names(&self, folder: &str, count: usize) -> Result<Vec<String>> {
        // Names are listed in the order of their bytes. Later pages of the listing are not requested.
        self.request(folder, move |store, folder| async move {
            let (mut objects, mut names) = (store.list(Some(&folder)), Vec::new());
            while names.len() < count
                && let Some(object) = objects.try_next().await?
            {
                let mut parts = object.location.prefix_match(&folder).into_iter().flatten();
                if let (Some(name), None) = (parts.next(), parts.next())
                    && !name.as_ref().starts_with('.')
                {
                    names.push(name.as_ref().to_owned());
                }
            }
            Ok(names)
        })
    }

    fn put_new(&self, path: &str, bytes: Bytes) -> Result<Published> {
        self.request(path, |store, path| async move {
            match store.put_opts(&path, PutPayload::from(bytes), PutMode::Create.into()).await {
                Ok(_) => Ok(Published::New),
                Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Ok(Published::Taken),
                Err(error) => Err(error),
            }
        })
    }

    fn put_file(&self, staged: Staged, path: &str, cancel: &CancellationToken) -> Result<()> {
        self.upload(staged.path(), path, cancel)
    }

    fn put_files(&self, files: Vec<(Staged, &str)>, cancel: &CancellationToken) -> Vec<Result<()>> {
        // Uploads wait for the network.
        std::thread::scope(|scope| {
            let put = |(staged, path)| scope.spawn(move || self.put_file(staged, path, cancel));
            let running: Vec<_> = files.into_iter().map(put).collect();
            running.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.request(path, |store, path| async move { existing(store.delete(&path).await).map(|_| ()) })
    }
}

fn listed(object: &ObjectMeta) -> Option<ListedFile> {
    let name = object.location.filename()?.to_owned();
    Some(ListedFile { name, num_bytes: object.size, modified: object.last_modified.into() })
}

/// Returns the outcome of a request; `None` if there is no file.
fn existing<T>(outcome: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match outcome {
        Err(StoreError::NotFound { .. }) => Ok(None),
        outcome => outcome.map(Some),
    }
}

async fn read(store: Arc<dyn ObjectStore>, path: StorePath) -> Result<Option<Bytes>, StoreError> {
    match existing(store.get(&path).await)? {
        Some(object) => object.bytes().await.map(Some),
        None => Ok(None),
    }
}

fn connect(text: &str, options: &StorageOptions) -> Result<Arc<dyn ObjectStore>> {
    let not_a_url = |why: String| Error::argument("path", "a folder, or a URL s3://…, gs://… or az://…", why);
    let url = Url::parse(text).map_err(|error| not_a_url(format!("{text} ({error})")))?;
    let (scheme, prefix) = ObjectStoreScheme::parse(&url).map_err(|_| not_a_url(text.to_owned()))?;
    match build(&scheme, text, options)? {
        Some(store) => Ok(Arc::new(PrefixStore::new(store, prefix))),
        None => Err(not_a_url(text.to_owned())),
    }
}

#[cfg(feature = "cloud")]
fn build(scheme: &ObjectStoreScheme, url: &str, options: &StorageOptions) -> Result<Option<Arc<dyn ObjectStore>>> {
    use object_store::aws::AmazonS3Builder;
    use object_store::azure::MicrosoftAzureBuilder;
    use object_store::gcp::GoogleCloudStorageBuilder;
    use object_store::{BackoffConfig, RetryConfig};
    // The longest time to retry an unanswered request.
    let retry_timeout = std::time::Duration::from_secs(30);
    let retry = RetryConfig { backoff: BackoffConfig::default(), max_retries: 10, retry_timeout };
    macro_rules! store {
        ($builder:ty) => {{
            let mut builder = <$builder>::from_env().with_url(url).with_retry(retry);
            for (name, value) in options.iter() {
                let key = name.to_ascii_lowercase().parse();
                let key = key.map_err(|_: StoreError| {
                    Error::argument("storage_options", format!("options of object_store for {url}"), name)
                })?;
                builder = builder.with_config(key, value);
            }
            Some(Arc::new(builder.build().map_err(|error| store_error(url, error))?))
        }};
    }
    Ok(match scheme {
        ObjectStoreScheme::AmazonS3 => store!(AmazonS3Builder),
        ObjectStoreScheme::GoogleCloudStorage => store!(GoogleCloudStorageBuilder),
        ObjectStoreScheme::MicrosoftAzure => store!(MicrosoftAzureBuilder),
        _ => None,
    })
}

#[cfg(not(feature = "cloud"))]
fn build(_: &ObjectStoreScheme, url: &str, _: &StorageOptions) -> Result<Option<Arc<dyn ObjectStore>>> {
    let unsupported = StoreError::NotSupported { source: "this a2store is built without the feature `cloud`".into() };
    Err(store_error(url, unsupported))
}

fn store_error(url: impl AsRef<Path>, error: StoreError) -> Error {
    Error::io(url, io::Error::new(io_kind(&error), error))
}

/// Returns the kind of a storage error in terms of the operating system.
pub(crate) fn io_kind(error: &StoreError) -> io::ErrorKind {
    match error {
        StoreError::NotFound { .. } => io::ErrorKind::NotFound,
        StoreError::AlreadyExists { .. } => io::ErrorKind::AlreadyExists,
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => io::ErrorKind::PermissionDenied,
        StoreError::NotSupported { .. } | StoreError::NotImplemented { .. } => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    }
}
