//! Time limits of tests and subprocesses.
use std::{
    io::{Read, Write},
    os::unix::process::ExitStatusExt,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// Ends this test binary an hour after the first call, for tests that compile in this process.
pub fn arm() {
    static ARMED: std::sync::Once = std::sync::Once::new();
    ARMED.call_once(|| {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_secs(3600));
            eprintln!(
                "watchdog: the tests have run for an hour; the one that hangs has printed no result"
            );
            std::process::exit(101);
        });
    });
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

/// Waits for the child; `None` if it exceeds `limit`, which is polled, and was killed.
pub fn wait(child: &mut Child, mut limit: impl FnMut() -> Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child to wait for") {
            return Some(status);
        }
        if start.elapsed() > limit() {
            child.kill().expect("a child to kill");
            child.wait().expect("a child to wait for");
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs a command on an input; panics past `limit`.
pub fn run(command: &mut Command, input: &[u8], limit: Duration) -> Finished {
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
        let status = wait(&mut child, || limit);
        let (stdout, stderr) =
            (out.join().unwrap().expect("its output"), err.join().unwrap().expect("its errors"));
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        let status =
            status.unwrap_or_else(|| panic!("{command:?} took longer than {limit:?}\n{stderr}"));
        Finished { status, stdout, stderr }
    })
}

#[test]
#[should_panic(expected = "took longer")]
fn a_sleeping_process_is_killed() {
    run(Command::new("sleep").arg("60"), b"", Duration::from_millis(100));
}
