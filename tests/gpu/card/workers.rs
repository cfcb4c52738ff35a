//! Worker processes that share the items of a suite.
use super::{Outcome, Suite, device};
use crate::{
    support::{all, emulated},
    watchdog::{Late, Watch},
};
use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    os::unix::process::ExitStatusExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};

/// Processor time of an item. One on the emulator takes up to a minute.
const LIMIT: Duration = Duration::from_secs(600);
/// How often the processor time is read.
const POLL: Duration = Duration::from_millis(50);
/// Prefix of lines for the parent process.
const MARK: &str = "=card= ";
/// The error after which the driver rejects all work of a process.
pub const FAULT: &str = "does no more work in this process";

/// Tells workers that they run on the emulator.
const EMULATED: &str = "KILN_CARD_EMULATED";

/// Whether this process runs on the emulator.
pub fn is_emulated() -> bool {
    std::env::var_os(EMULATED).is_some()
}

/// Most processes of a suite.
const MOST_WORKERS: u64 = 16;

/// One suite at a time uses the GPU, so that all device memory is its own.
static CARD: Mutex<()> = Mutex::new(());

fn number(variable: &str, usual: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(usual, |t| t.parse().unwrap_or_else(|e| panic!("{variable} is '{t}': {e}")))
}

/// Serves item numbers, one per input line, until an invalid one or until `KILN_CARD_UNTIL`
/// seconds, which only `benches/gpu/sanitize.sh` sets; it also starts this.
pub fn serve(suites: &[&Suite]) {
    let Ok(name) = std::env::var("KILN_CARD_SUITE") else { return };
    let suite = suites
        .iter()
        .find(|s| s.name == name)
        .unwrap_or_else(|| panic!("there is no suite '{name}'"));
    println!();
    let (start, seconds) = (Instant::now(), number("KILN_CARD_UNTIL", u64::MAX));
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let item: u64 = line.trim().parse().unwrap_or_else(|e| panic!("'{line}' is no item: {e}"));
        if item >= (suite.count)() || start.elapsed().as_secs() >= seconds {
            return;
        }
        println!("=item= {}", (suite.label)(item));
        let outcome = catch_unwind(AssertUnwindSafe(|| (suite.check)(item))).unwrap_or_else(|e| {
            let text = e
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| e.downcast_ref::<&str>().map(|s| s.to_string()));
            Outcome::Wrong(format!("panics: {}", text.unwrap_or_default()))
        });
        println!("{MARK}{}", serde_json::to_string(&outcome).expect("JSON"));
    }
}

/// A worker and its output.
struct Worker {
    child: Child,
    input: ChildStdin,
    lines: mpsc::Receiver<String>,
}

impl Worker {
    fn start(suite: &Suite, folder: &Path, number: usize, chip: Option<&str>) -> Worker {
        let said = File::create(folder.join(format!("said.{number}"))).expect("a file");
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args([
            "gpu::card::worker",
            "--exact",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ]);
        command.env("KILN_CARD_SUITE", suite.name).env("KILN_CACHE_DIR", folder.join("cache"));
        command.env("KILN_COMPILE_THREADS", "1").env("KILN_NUM_THREADS", "1");
        if let Some(chip) = chip {
            emulated(&mut command)
                .env(EMULATED, "1")
                .env("KILN_EMULATOR_THREADS", "1")
                .env("KILN_EMULATOR_CHIP", chip);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(said)
            .spawn()
            .expect("a process");
        let (input, output) =
            (child.stdin.take().expect("its input"), child.stdout.take().expect("its output"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The receiver is gone once nobody waits.
                let _ = sender.send(line);
            }
        });
        Worker { child, input, lines }
    }
    /// Runs an item. None: the worker must be replaced.
    fn check(&mut self, item: u64) -> Result<Outcome, String> {
        let ended = || "has ended".to_string();
        writeln!(self.input, "{item}").and_then(|()| self.input.flush()).map_err(|_| ended())?;
        let mut watch = Watch::new(self.child.id());
        loop {
            let line = match self.lines.recv_timeout(POLL) {
                Ok(line) => line,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    watch.poll(LIMIT).map_err(|why: Late| why.to_string())?;
                    continue;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(ended()),
            };
            if let Some((_, text)) = line.split_once(MARK) {
                return Ok(serde_json::from_str(text)
                    .unwrap_or_else(|e| Outcome::Wrong(format!("said '{text}': {e}"))));
            }
        }
    }
    /// Ends the worker and returns its exit status.
    fn end(mut self) -> String {
        drop(self.input);
        let _ = self.child.kill();
        let status = self.child.wait().expect("a child to wait for");
        status.signal().map_or_else(|| status.to_string(), |s| format!("signal {s}"))
    }
}

/// Whether there is a GPU, or another device is selected.
fn real() -> bool {
    device() != "cuda:0" || kiln::runtime::cuda::Device::cuda(0).is_ok()
}

/// Runs all items of a suite; without a GPU on the emulator, then possibly only some, and fewer yet
/// without `./x test --all`. Panics with a list of failures.
pub fn run(suite: &'static Suite) {
    run_by(suite, MOST_WORKERS);
}

/// The same by one process at a time, for items that compare the card's free memory.
pub fn run_alone(suite: &'static Suite) {
    run_by(suite, 1);
}

fn run_by(suite: &'static Suite, most: u64) {
    let real = real();
    let step = if real { 1 } else { shared(suite, suite.emulated) };
    // Emulated memory is the process's own.
    run_on(suite, (!real).then_some("sm_90"), step, if real { most } else { MOST_WORKERS });
}

/// Every how-many-th item runs on the emulator. A suite of few items runs as `./x test --all` has
/// it, and of others at least so many run.
fn shared(suite: &Suite, step: u64) -> u64 {
    const LEAST: u64 = 32;
    const FEWER: u64 = 8;
    if all() { step } else { ((suite.count)() / LEAST).clamp(step, step * FEWER) }
}

/// Without a GPU, runs every `step`-th item on an emulated older chip.
pub fn run_emulated(suite: &'static Suite, chip: &str, step: u64) {
    if real() {
        eprintln!("skipped: {} on an emulated {chip}, since there is a card", suite.name);
        return;
    }
    run_on(suite, Some(chip), shared(suite, step), MOST_WORKERS);
}

fn run_on(suite: &'static Suite, chip: Option<&str>, step: u64, most: u64) {
    let _card = CARD.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let (items, start) = ((suite.count)(), Instant::now());
    let count = items.div_ceil(step);
    let workers = number("KILN_CARD_WORKERS", processors);
    let workers = workers.clamp(1, count.min(most).max(1)) as usize;
    let time = Duration::from_secs(number("KILN_CARD_SECONDS", u64::MAX));
    let (next, done) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let work = |number: usize| {
        let mut worker = None;
        while start.elapsed() < time {
            let item = next.fetch_add(step, Relaxed);
            if item >= items {
                break;
            }
            let mut current =
                worker.take().unwrap_or_else(|| Worker::start(suite, folder.path(), number, chip));
            let outcome = match current.check(item) {
                Ok(outcome) if !matches!(&outcome, Outcome::Wrong(e) if e.contains(FAULT)) => {
                    worker = Some(current);
                    outcome
                }
                // The worker is unusable.
                Ok(fault) => {
                    current.end();
                    fault
                }
                Err(how) => {
                    let ended = current.end();
                    let said =
                        std::fs::read_to_string(folder.path().join(format!("said.{number}")))
                            .unwrap_or_default();
                    let last: Vec<&str> = said.trim_end().lines().rev().take(8).collect();
                    let last: Vec<&str> = last.into_iter().rev().collect();
                    Outcome::Wrong(format!("the process {how} ({ended})\n{}", last.join("\n")))
                }
            };
            if let Outcome::Wrong(e) = &outcome {
                eprintln!(
                    "{} {}: {}",
                    suite.name,
                    (suite.label)(item),
                    e.lines().next().unwrap_or_default()
                );
            }
            done.lock().expect("a list").push((item, outcome));
        }
        worker.map(Worker::end)
    };
    std::thread::scope(|scope| {
        let work = &work;
        (0..workers).for_each(|i| drop(scope.spawn(move || work(i))));
    });
    let mut done = done.into_inner().expect("a list");
    done.sort_by_key(|(item, _)| *item);
    report(suite, count, &done, start.elapsed());
}

fn report(suite: &Suite, count: u64, done: &[(u64, Outcome)], time: Duration) {
    let (mut wrong, mut refused, mut agree) =
        (vec![], std::collections::BTreeMap::<String, (usize, String)>::new(), 0);
    for (item, outcome) in done {
        match outcome {
            Outcome::Agrees => agree += 1,
            Outcome::Refused(e) if suite.whole => {
                wrong.push(format!("{}: refused: {e}", (suite.label)(*item)))
            }
            Outcome::Refused(e) => {
                let reason = e.lines().find_map(|l| {
                    l.rsplit(": ").find(|part| part.contains("has no compiled form"))
                });
                refused
                    .entry(reason.unwrap_or(e).to_string())
                    .or_insert_with(|| (0, (suite.label)(*item)))
                    .0 += 1;
            }
            Outcome::Wrong(e) => wrong.push(format!("{}: {e}", (suite.label)(*item))),
        }
    }
    let no_form: usize = refused.values().map(|(n, _)| n).sum();
    eprintln!(
        "{}: {} of {count} done in {:.0} s: {agree} agree, {no_form} have no form, {} are wrong",
        suite.name,
        done.len(),
        time.as_secs_f64(),
        wrong.len()
    );
    refused.iter().for_each(|(what, (n, first))| eprintln!("  {n}, the first {first}: {what}"));
    let short = |e: &String| {
        let most = e.char_indices().nth(3000).map_or(e.len(), |(i, _)| i);
        e[..most].to_string()
    };
    let all: Vec<String> = wrong.iter().map(short).collect();
    assert!(
        all.is_empty(),
        "{}: {} of {} are wrong\n{}",
        suite.name,
        all.len(),
        done.len(),
        all.join("\n\n")
    );
    assert!(agree > 0, "{}: nothing was compared", suite.name);
}
