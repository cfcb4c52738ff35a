//! Limits of tests and subprocesses. They are in processor time, not in wall time: a loaded machine
//! slows a test down and does not fail it. What blocks for ever uses none, so a process tree whose
//! threads all sleep is given up too; a thread that waits for a processor does not sleep.
use std::{
    fmt,
    io::{Read, Write},
    os::unix::process::ExitStatusExt,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Once,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Processor time of this binary and its children since a test last began.
const STUCK: Duration = Duration::from_secs(2 * 3600);
/// The pause between two polls, at most; shorter ones come first.
const PAUSE: Duration = Duration::from_millis(50);
/// So many polls may find a process tree asleep: a minute's, where nothing else delays them.
const ASLEEP: u32 = 1200;

/// Why a process is not waited for any longer.
#[derive(Debug)]
pub enum Late {
    /// It and its children used more processor time than this.
    Spent(Duration),
    /// All threads slept at this many polls.
    Asleep(u32),
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Late::Spent(limit) => write!(f, "uses more than {limit:?} of processor time"),
            Late::Asleep(polls) => write!(f, "hangs: all threads slept at {polls} polls"),
        }
    }
}

/// Watches a process and its descendants.
pub struct Watch {
    process: u32,
    /// The polling thread, which does not count.
    poller: libc::pid_t,
    start: Duration,
    last: Duration,
    asleep: u32,
    most_asleep: u32,
}

impl Watch {
    /// Starts at the time that the process has used so far.
    pub fn new(process: u32) -> Watch {
        let start = spent(process);
        // SAFETY: without arguments or effects.
        let poller = unsafe { libc::gettid() };
        Watch { process, poller, start, last: start, asleep: 0, most_asleep: ASLEEP }
    }
    /// The processor time since the start.
    pub fn spent(&self) -> Duration {
        self.last.saturating_sub(self.start)
    }
    /// Starts anew.
    pub fn restart(&mut self) {
        (self.start, self.asleep) = (self.last, 0);
    }
    /// To be called about once in [`PAUSE`]; an error once `limit` of processor time is used, or
    /// nothing runs.
    pub fn poll(&mut self, limit: Duration) -> Result<(), Late> {
        let now = spent(self.process);
        // Another thread of this process may poll too, so one that runs now and then still hangs.
        self.asleep = if now == self.last && sleeps(self.process, self.poller) {
            self.asleep + 1
        } else {
            self.asleep.saturating_sub(1)
        };
        self.last = now;
        if self.spent() > limit {
            return Err(Late::Spent(limit));
        }
        if self.asleep > self.most_asleep {
            return Err(Late::Asleep(self.asleep));
        }
        Ok(())
    }
}

/// The processes that the threads of this one started, and that live.
fn children(process: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let of = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children"));
    let lists = threads.flatten().filter_map(|t| of(t).ok());
    lists
        .flat_map(|l| l.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Processor time of a process, its ended children and its living descendants; zero if it is gone.
fn spent(process: u32) -> Duration {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else {
        return Duration::ZERO;
    };
    // The name, in parentheses, may hold anything; utime is the 14th field of all.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(4).filter_map(|f| f.parse::<u64>().ok()).sum();
    // SAFETY: a constant of the system.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    let own = Duration::from_millis(ticks * 1000 / per_second);
    own + children(process).into_iter().map(spent).sum::<Duration>()
}

/// Whether every thread but `but` of the process and of its descendants sleeps or has ended.
fn sleeps(process: u32, but: libc::pid_t) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let asleep = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit(')').next().and_then(|s| s.split_whitespace().next());
        thread.file_name().to_str() == Some(&but.to_string())
            || matches!(state, None | Some("S" | "Z" | "X"))
    };
    threads.flatten().all(asleep) && children(process).into_iter().all(|c| sleeps(c, but))
}

/// Kills a descendant of a child that is not waited for any longer, and its own descendants.
fn kill(process: u32) {
    children(process).into_iter().for_each(kill);
    // SAFETY: a signal to a process that a test has started.
    unsafe { libc::kill(process as libc::pid_t, libc::SIGKILL) };
}

/// A test begins, or a long one gets on. Ends this test binary once it hangs or loops.
pub fn arm() {
    static ARMED: Once = Once::new();
    static BEGUN: AtomicU64 = AtomicU64::new(0);
    BEGUN.fetch_add(1, Relaxed);
    ARMED.call_once(|| {
        std::thread::spawn(|| {
            let (mut watch, mut last) = (Watch::new(std::process::id()), 0);
            loop {
                std::thread::sleep(Duration::from_secs(1));
                if BEGUN.load(Relaxed) != last {
                    last = BEGUN.load(Relaxed);
                    watch.restart();
                }
                if let Err(why) = watch.poll(STUCK) {
                    eprintln!("watchdog: this binary {why}; the test has printed no result");
                    std::process::exit(101);
                }
            }
        });
    });
}

/// Waits for another thread or process; panics with `what` once this process hangs or has used ten
/// minutes of processor time.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let (mut watch, mut pauses) = (Watch::new(std::process::id()), pauses());
    while !holds() {
        pauses();
        if let Err(why) = watch.poll(Duration::from_secs(600)) {
            panic!("{what}: this process {why}");
        }
    }
}

/// Sleeps for longer and longer, so that what is quick is not waited for.
pub fn pauses() -> impl FnMut() {
    let mut next = Duration::from_millis(1);
    move || {
        std::thread::sleep(next);
        next = (next * 2).min(PAUSE);
    }
}

/// Exit status and output of a subprocess.
pub struct Finished {
    /// Its exit code or signal.
    pub status: ExitStatus,
    /// Its output.
    pub stdout: Vec<u8>,
    /// Its errors, with invalid UTF-8 replaced.
    pub stderr: String,
}

impl Finished {
    /// The exit code; a signal is a failure of the test.
    pub fn code(&self) -> i32 {
        let what = || format!("ended by signal {:?}\n{}", self.status.signal(), self.stderr);
        self.status.code().unwrap_or_else(|| panic!("{}", what()))
    }
    /// The output as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("text on stdout")
    }
}

/// Waits for the child. It is killed once it hangs or exceeds `limit`, which is asked at every poll
/// and may restart the watch.
pub fn wait(
    child: &mut Child,
    mut limit: impl FnMut(&mut Watch) -> Duration,
) -> Result<ExitStatus, Late> {
    let watch = Watch::new(child.id());
    wait_with(child, watch, &mut limit)
}

fn wait_with(
    child: &mut Child,
    mut watch: Watch,
    limit: &mut dyn FnMut(&mut Watch) -> Duration,
) -> Result<ExitStatus, Late> {
    let mut pauses = pauses();
    loop {
        if let Some(status) = child.try_wait().expect("a child to wait for") {
            return Ok(status);
        }
        let most = limit(&mut watch);
        if let Err(why) = watch.poll(most) {
            // Its children first, which may hold its output open.
            children(child.id()).into_iter().for_each(kill);
            child.kill().expect("a child to kill");
            child.wait().expect("a child to wait for");
            return Err(why);
        }
        pauses();
    }
}

/// Runs a command on an input; panics if it hangs or uses more processor time than `limit`.
pub fn run(command: &mut Command, input: &[u8], limit: Duration) -> Finished {
    run_asleep(command, input, limit, ASLEEP)
}

fn run_asleep(command: &mut Command, input: &[u8], limit: Duration, most: u32) -> Finished {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process");
    let (mut stdin, mut stdout, mut stderr) =
        (child.stdin.take().unwrap(), child.stdout.take().unwrap(), child.stderr.take().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A process may exit without reading all input.
            let _ = stdin.write_all(input);
        });
        let out = scope.spawn(move || {
            let mut all = vec![];
            stdout.read_to_end(&mut all).map(|_| all)
        });
        let err = scope.spawn(move || {
            let mut all = vec![];
            stderr.read_to_end(&mut all).map(|_| all)
        });
        let watch = Watch { most_asleep: most, ..Watch::new(child.id()) };
        let status = wait_with(&mut child, watch, &mut |_| limit);
        let (stdout, stderr) =
            (out.join().unwrap().expect("its output"), err.join().unwrap().expect("its errors"));
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        let status = status.unwrap_or_else(|why| panic!("{command:?} {why}\n{stderr}"));
        Finished { status, stdout, stderr }
    })
}

#[test]
#[should_panic(expected = "all threads slept")]
fn a_sleeping_process_is_killed() {
    run_asleep(Command::new("sleep").arg("600"), b"", Duration::from_secs(60), 10);
}

#[test]
#[should_panic(expected = "of processor time")]
fn a_looping_process_is_killed() {
    let mut sh = Command::new("sh");
    run(sh.args(["-c", "while :; do :; done"]), b"", Duration::from_millis(300));
}

/// A grandchild counts, and a process that is stopped does not sleep.
#[test]
#[should_panic(expected = "of processor time")]
fn a_child_of_a_sleeping_process_counts() {
    let mut sh = Command::new("sh");
    let script = "(timeout 60 sh -c 'while :; do :; done') & wait";
    run_asleep(sh.args(["-c", script]), b"", Duration::from_millis(300), 10);
}
