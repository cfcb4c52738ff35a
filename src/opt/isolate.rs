//! Crash isolation. MLIR can abort on malformed input, so a child process runs it. A shared page
//! reports the child's progress to the parent.
use super::{Cli, OptError, console::Console};
use crate::{Exit, lowering::driver::reproducer::reproducer_line};
use std::{
    fs::File,
    io::{Error, Read, Result, Seek},
    os::fd::{AsRawFd, FromRawFd},
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

/// What the child is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Parsing and verifying the input.
    Reading,
    /// Parsing the pipeline.
    Pipeline,
    /// Running a pass.
    Pass,
    /// Printing the result.
    Printing,
    /// Executing the program.
    Executing,
}

const STAGES: [Stage; 5] =
    [Stage::Reading, Stage::Pipeline, Stage::Pass, Stage::Printing, Stage::Executing];
const TEXT: usize = 1 << 16;

#[repr(C)]
struct Page {
    stage: AtomicU32,
    /// Index of the current part of a split input.
    part: AtomicU32,
    pass: Text,
    pipeline: Text,
}

#[repr(C)]
struct Text {
    length: AtomicU32,
    bytes: [std::cell::UnsafeCell<u8>; TEXT],
}

impl Text {
    fn set(&self, text: &str) {
        let text = if text.len() > TEXT { "" } else { text };
        // SAFETY: only the child's one thread writes; the parent reads after the child has exited.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), self.bytes[0].get(), text.len()) };
        self.length.store(text.len() as u32, Ordering::Release);
    }
    fn get(&self) -> String {
        let length = (self.length.load(Ordering::Acquire) as usize).min(TEXT);
        let bytes: Vec<u8> = self.bytes[..length].iter().map(|b| unsafe { *b.get() }).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Handle to the shared page.
#[derive(Clone, Copy)]
pub struct ProgressPage(&'static Page);
// SAFETY: see Text::set; the other fields are atomic.
unsafe impl Send for ProgressPage {}
unsafe impl Sync for ProgressPage {}

impl ProgressPage {
    /// A page shared with processes forked from now on.
    pub fn new() -> Result<ProgressPage> {
        let (size, access) = (size_of::<Page>(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a fresh zeroed mapping that is never unmapped; all-zero is a valid Page.
        unsafe {
            let p = libc::mmap(
                std::ptr::null_mut(),
                size,
                access,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if p == libc::MAP_FAILED {
                Err(Error::last_os_error())
            } else {
                Ok(ProgressPage(&*p.cast::<Page>()))
            }
        }
    }
    /// Records the stage that begins; the detail is a pass's flag.
    pub fn enter(&self, stage: Stage, detail: &str) {
        self.0.pass.set(detail);
        self.0.stage.store(stage as u32, Ordering::Release);
    }
    /// Records the part that begins.
    pub fn part(&self, part: usize) {
        self.0.part.store(part as u32, Ordering::Release);
        self.0.pipeline.set("");
    }
    /// Records the pipeline, for a reproducer.
    pub fn pipeline(&self, text: &str) {
        self.0.pipeline.set(text);
    }
    fn stage(&self) -> Stage {
        STAGES.get(self.0.stage.load(Ordering::Acquire) as usize).copied().unwrap_or(Stage::Reading)
    }
}

/// Which process this is after the fork.
pub enum Process {
    /// The child, with a console on the original standard error.
    Child(Console),
    /// The parent, which waits.
    Parent(Child),
}

/// The child process, as its parent sees it.
pub struct Child {
    pid: libc::pid_t,
    stderr: File,
}

/// How the child ended.
pub struct ChildExit {
    status: libc::c_int,
    /// Captured standard error, such as output of MLIR itself.
    stderr: String,
}

/// Forks. The process must be single-threaded.
pub fn fork() -> Result<Process> {
    // SAFETY: plain system calls on descriptors owned by this function; the process is
    // single-threaded.
    unsafe {
        let fd = libc::memfd_create(c"kiln-opt".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(Error::last_os_error());
        }
        let stderr = File::from_raw_fd(fd);
        let parent = libc::getpid();
        match libc::fork() {
            -1 => Err(Error::last_os_error()),
            0 => {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::getppid() != parent {
                    libc::raise(libc::SIGKILL);
                }
                libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 });
                let saved = libc::fcntl(2, libc::F_DUPFD_CLOEXEC, 3);
                if saved < 0 {
                    return Ok(Process::Child(Console::standard()));
                }
                libc::dup2(stderr.as_raw_fd(), 2);
                Ok(Process::Child(Console::with_error(File::from_raw_fd(saved))))
            }
            pid => Ok(Process::Parent(Child { pid, stderr })),
        }
    }
}

impl Child {
    /// Waits for the child to exit.
    pub fn wait(mut self) -> Result<ChildExit> {
        let mut status = 0;
        // SAFETY: the pid is our child's.
        while unsafe { libc::waitpid(self.pid, &mut status, 0) } < 0 {
            let e = Error::last_os_error();
            if e.kind() != std::io::ErrorKind::Interrupted {
                return Err(e);
            }
        }
        let mut stderr = vec![];
        self.stderr.rewind()?;
        self.stderr.read_to_end(&mut stderr)?;
        Ok(ChildExit { status, stderr: String::from_utf8_lossy(&stderr).into_owned() })
    }
}

/// The exit code: the child's own, or the one for its crash.
pub fn exit_code(
    end: ChildExit,
    progress_page: &ProgressPage,
    cli: &Cli,
    name: &str,
    source: &[u8],
    console: &Console,
) -> std::result::Result<Exit, OptError> {
    if libc::WIFEXITED(end.status) {
        // Output of passes such as print-op-stats.
        console.err(end.stderr.as_bytes());
        return Ok(Exit::from_code(libc::WEXITSTATUS(end.status) as u8).unwrap_or(Exit::Failed));
    }
    let signal = signal_name(libc::WTERMSIG(end.status));
    let memory = |l: &str| {
        ["memory allocation of", "bad_alloc", "out of memory"].iter().any(|m| l.contains(m))
    };
    let message = end
        .stderr
        .lines()
        .find(|l| memory(l) || l.contains("LLVM ERROR") || l.contains("overflowed its stack"));
    let exit = if message.is_some_and(memory) || libc::WTERMSIG(end.status) == libc::SIGKILL {
        Exit::Device
    } else {
        Exit::Failed
    };
    let message = message.map_or(String::new(), |l| format!(": {}", l.trim()));
    let pass = progress_page.0.pass.get();
    Err(match progress_page.stage() {
        Stage::Reading => OptError::usage(format!(
            "MLIR crashed ({signal}{message}) while parsing {name}; this input is not supported"
        )),
        Stage::Pipeline => OptError::usage(format!(
            "MLIR crashed ({signal}{message}) while reading the pipeline; it is not supported"
        )),
        stage => {
            let during = match stage {
                Stage::Printing => "while printing".to_string(),
                Stage::Executing => "while running the program".to_string(),
                _ => format!("in {pass}"),
            };
            let hint = reproducer(progress_page, cli, source)
                .map_or_else(|e| format!("no reproducer: {e}"), |p| reproducer_line(&p));
            OptError {
                exit,
                message: format!("{name}: crashed ({signal}{message}) {during}\n{hint}"),
            }
        }
    })
}

/// Writes a reproducer: the original input and the pipeline.
fn reproducer(
    progress_page: &ProgressPage,
    cli: &Cli,
    source: &[u8],
) -> std::result::Result<PathBuf, OptError> {
    let text = std::str::from_utf8(source)
        .map_err(|_| OptError::usage("the input is bytecode; run kiln-opt on it again"))?;
    let parts = super::diagnostics::parts(text, cli.split_input_file);
    let part = parts
        .get(progress_page.0.part.load(Ordering::Acquire) as usize)
        .ok_or_else(|| OptError::usage("no such part of the input"))?;
    let path = cli.reproducer.clone().unwrap_or_else(reproducer_path);
    let text = crate::lowering::driver::manager::reproducer_of_text(
        part.text,
        &progress_page.0.pipeline.get(),
    );
    std::fs::write(&path, text).map_err(|e| OptError::file(&path, e))?;
    Ok(path)
}

/// A new file in the temporary folder.
pub fn reproducer_path() -> PathBuf {
    crate::lowering::driver::reproducer::new_reproducer(&std::env::temp_dir())
}

fn signal_name(signal: libc::c_int) -> String {
    match signal {
        libc::SIGSEGV => "SIGSEGV".into(),
        libc::SIGABRT => "SIGABRT".into(),
        libc::SIGBUS => "SIGBUS".into(),
        libc::SIGILL => "SIGILL".into(),
        libc::SIGFPE => "SIGFPE".into(),
        libc::SIGTRAP => "SIGTRAP".into(),
        libc::SIGKILL => "SIGKILL, perhaps for want of memory".into(),
        n => format!("signal {n}"),
    }
}
