//! What the shop does for its customers, and how each of it stalls the runtime.
//!
//! Every function named `*_handler` is async and harmless by itself; what it calls is not. None of
//! these bugs needs an unsafe line or an exotic crate, and each passes review easily.

use std::ffi::CString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// The paths that stall, one for each kind.
pub(super) const DEPARTMENTS: [&str; 5] =
    ["/checkout", "/settings", "/report", "/stock", "/newsletter"];

/// Answers at once. It is slow only when one of the others keeps its worker.
pub(super) async fn health_handler() -> &'static str {
    "open\n"
}

/// Pays: the payment client retries with a blocking sleep. Cause: `syscall`.
pub(super) async fn checkout_handler() -> &'static str {
    charge_card();
    "paid\n"
}

fn charge_card() {
    let retry_after = Duration::from_millis(120);
    thread::sleep(retry_after);
}

/// Reads the settings that another process is about to write. Cause: `syscall`, with the path.
pub(super) async fn settings_handler() -> &'static str {
    let feed = SettingsFeed::open();
    match load_settings(&feed.path) {
        Ok(_) => "loaded\n",
        Err(_) => "no settings\n",
    }
}

fn load_settings(path: &Path) -> std::io::Result<Vec<u8>> {
    std::fs::read(path)
}

/// Renders a report in place of handing it to a thread. Cause: `cpu`.
pub(super) async fn report_handler() -> &'static str {
    let checksum = render_report(Duration::from_millis(60));
    if checksum == 0 { "empty\n" } else { "rendered\n" }
}

fn render_report(effort: Duration) -> u64 {
    let start = Instant::now();
    let mut checksum = 0xcbf2_9ce4_8422_2325_u64;
    while start.elapsed() < effort {
        for row in 0..1_000_u64 {
            checksum = (checksum ^ row).wrapping_mul(0x0100_0000_01b3);
        }
    }
    checksum
}

/// Reserves stock under a lock that the inventory thread keeps. Cause: `lock`.
pub(super) async fn stock_handler() -> &'static str {
    let stock = Arc::new(Mutex::new(100));
    let Some(inventory) = Inventory::begin(&stock).await else { return "closed\n" };
    inventory.count_once_more();
    reserve_stock(&stock);
    "reserved\n"
}

fn reserve_stock(stock: &Mutex<u32>) {
    let mut stock = stock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    *stock -= 1;
}

/// Paces a mailing with two thousand tiny sleeps: none is long, together they are. Cause: `syscall`.
pub(super) async fn newsletter_handler() -> &'static str {
    send_newsletter(2_000);
    "sent\n"
}

fn send_newsletter(subscribers: u32) {
    for _ in 0..subscribers {
        thread::sleep(Duration::from_micros(50));
    }
}

/// A FIFO that somebody else fills 80 ms after it was opened; it is removed when this is dropped.
struct SettingsFeed {
    path: PathBuf,
}

impl SettingsFeed {
    fn open() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            "stallscope-demo-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        if make_fifo(&path) {
            let feed = path.clone();
            thread::spawn(move || write_settings(&feed));
        }
        Self { path }
    }
}

impl Drop for SettingsFeed {
    fn drop(&mut self) {
        // A file in the temporary folder that can't be removed is not the customer's concern.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn make_fifo(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: `path` is a C string that lives until after the call.
    unsafe { libc::mkfifo(path.as_ptr(), 0o600) == 0 }
}

fn write_settings(path: &Path) {
    if let Ok(mut feed) = std::fs::File::options().write(true).open(path) {
        thread::sleep(Duration::from_millis(80));
        // The reader may have gone away by then.
        let _ = feed.write_all(b"currency = EUR\n");
    }
}

/// A thread that holds the stock's lock, and keeps it for 90 ms after it was asked to go on.
struct Inventory {
    go_on: mpsc::Sender<()>,
}

impl Inventory {
    /// Returns once the lock is taken; `None` if no thread is to be had.
    async fn begin(stock: &Arc<Mutex<u32>>) -> Option<Self> {
        let (taken, is_taken) = oneshot::channel();
        let (go_on, asked) = mpsc::channel();
        let stock = Arc::clone(stock);
        thread::Builder::new()
            .name("inventory".into())
            .spawn(move || count_inventory(&stock, taken, &asked))
            .ok()?;
        is_taken.await.ok()?;
        Some(Self { go_on })
    }

    fn count_once_more(self) {
        // The thread waits for this, so it is there to hear it.
        let _ = self.go_on.send(());
    }
}

fn count_inventory(stock: &Mutex<u32>, taken: oneshot::Sender<()>, asked: &mpsc::Receiver<()>) {
    let counted = stock.lock();
    if taken.send(()).is_ok() && asked.recv().is_ok() {
        thread::sleep(Duration::from_millis(90));
    }
    drop(counted);
}
