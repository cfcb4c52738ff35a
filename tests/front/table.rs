//! The option table: each row sets its own field only, by name and by variable, for functions and
//! files.
use super::*;
use kiln::{Options, compile::Settings};
use std::process::Command;

macro_rules! fields {
    ($s:expr, $prefix:literal: $($field:ident)*) => { vec![$((concat!($prefix, stringify!($field)), format!("{:?}", $s.$field))),*] };
}

fn of_files(o: &Options) -> Vec<(&'static str, String)> {
    fields!(o, "options.": function threads workers cache cache_bytes time_budget disable dump diagram weights reproducer target device blocking reuse mode cudagraph_replay nvtx tf32 fast_math cufft align_random_eager schedules
        max_autotune autotune_budget autotune_candidates verify orders passes)
}

fn all(s: &Settings) -> Vec<(&'static str, String)> {
    let own = fields!(s, "": mode dynamic fullgraph freeze disable backend cache_size_limit each_op asynchronous donate keep_graphs);
    own.into_iter().chain(of_files(&s.options)).collect()
}

/// The expectation of a row.
struct Case {
    name: &'static str,
    /// A value other than the default.
    value: &'static str,
    /// The setting that differs with it, and its value.
    sets: &'static [(&'static str, &'static str)],
    /// A value that it rejects; none if it accepts all.
    wrong: Option<&'static str>,
}

const fn case(
    name: &'static str,
    value: &'static str,
    sets: &'static [(&'static str, &'static str)],
    wrong: Option<&'static str>,
) -> Case {
    Case { name, value, sets, wrong }
}

/// The verifier's default depends on the build profile.
const OTHER: &str = if cfg!(debug_assertions) { "false" } else { "true" };
const NO_BOOL: Option<&str> = Some("yes");
const CASES: &[Case] = &[
    case(
        "mode",
        "max-autotune",
        &[
            ("mode", "\"max-autotune\""),
            ("options.mode", "ReduceOverhead"),
            ("options.max_autotune", "true"),
        ],
        Some("fast"),
    ),
    case("device", "cuda:3", &[("options.device", "Cuda(3)")], Some("tpu")),
    case(
        "target",
        "x86_64:haswell",
        &[("options.target", "Some(\"x86_64:haswell\")")],
        Some("x86_64:haswel"),
    ),
    case("threads", "77", &[("options.threads", "77")], Some("257")),
    case("compile_threads", "78", &[("options.workers", "78")], Some("0")),
    case("time_budget", "1.5", &[("options.time_budget", "Some(1.5s)")], Some("-1")),
    case("cache_dir", "/nowhere/kiln", &[("options.cache", "Dir(\"/nowhere/kiln\")")], None),
    case("cache_size", "3M", &[("options.cache_bytes", "3145728")], Some("3 apples")),
    case("dump", "/nowhere/dump", &[("options.dump", "Some(\"/nowhere/dump\")")], None),
    case("trace.enabled", "true", &[("options.dump", "Some(\"kiln_dump\")")], NO_BOOL),
    case(
        "trace.graph_diagram",
        "true",
        &[("options.dump", "Some(\"kiln_dump\")"), ("options.diagram", "true")],
        NO_BOOL,
    ),
    case("weights", "/nowhere", &[("options.weights", "Some(\"/nowhere\")")], None),
    case("reproducer", "/nowhere", &[("options.reproducer", "Some(\"/nowhere\")")], None),
    case("verify", OTHER, &[("options.verify", OTHER)], NO_BOOL),
    case(
        "passes",
        "prims: cse",
        &[("options.passes", "[UserPasses { at: Level(Prims), passes: \"cse\" }]")],
        Some("cse"),
    ),
    case(
        "chunk_bytes",
        "64M",
        &[(
            "options.passes",
            "[UserPasses { at: Instead(\"kiln-chunk-rows\"), passes: \"kiln-chunk-rows{bytes=67108864}\" }]",
        )],
        Some("few"),
    ),
    case(
        "autocast",
        "bf16",
        &[(
            "options.passes",
            "[UserPasses { at: Instead(\"kiln-autocast\"), passes: \"kiln-autocast{dtype=bf16}\" }]",
        )],
        Some("fp8"),
    ),
    case(
        "float8",
        "rowwise",
        &[(
            "options.passes",
            "[UserPasses { at: Instead(\"kiln-float8-products\"), passes: \"kiln-float8-products{recipe=rowwise}\" }]",
        )],
        Some("blockwise"),
    ),
    case("tf32", "true", &[("options.tf32", "true")], NO_BOOL),
    case("fast_math", "true", &[("options.fast_math", "true")], NO_BOOL),
    case("cufft", "true", &[("options.cufft", "true")], NO_BOOL),
    case(
        "align_random_eager",
        "270336",
        &[("options.align_random_eager", "Threads(270336)")],
        Some("1000"),
    ),
    case("cudagraphs", "true", &[("options.mode", "ReduceOverhead")], NO_BOOL),
    case("cudagraph_replay", "off", &[("options.cudagraph_replay", "false")], NO_BOOL),
    case("cuda_blocking", "on", &[("options.blocking", "true")], NO_BOOL),
    case("nvtx", "1", &[("options.nvtx", "true")], NO_BOOL),
    case("max_autotune", "true", &[("options.max_autotune", "true")], NO_BOOL),
    case("autotune_budget", "7", &[("options.autotune_budget", "7s")], Some("0")),
    case("autotune_candidates", "7", &[("options.autotune_candidates", "7")], Some("0")),
    case("schedules", "table.txt", &[("options.schedules", "Some(\"table.txt\")")], None),
    case("shape_padding", "false", &[("options.disable", "[\"kiln-pad-products\"]")], NO_BOOL),
    case("prologue_fusion", "false", &[("options.disable", "[\"kiln-prologues\"]")], NO_BOOL),
    case("dynamic", "true", &[("dynamic", "Some(true)")], NO_BOOL),
    case("fullgraph", "true", &[("fullgraph", "true")], NO_BOOL),
    case("backend", "interpreter", &[("backend", "\"interpreter\"")], Some("interpreted")),
    case("freeze", "true", &[("freeze", "true")], NO_BOOL),
    case("disable", "true", &[("disable", "true")], NO_BOOL),
    case("cache_size_limit", "3", &[("cache_size_limit", "3")], Some("0")),
    case("asynchronous", "true", &[("asynchronous", "true")], NO_BOOL),
    case("donate", "false", &[("donate", "false")], NO_BOOL),
    case("keep_graphs", "true", &[("keep_graphs", "true")], NO_BOOL),
    case("break_each_op", "true", &[("each_op", "true")], NO_BOOL),
];

#[test]
fn each_option_sets_only_its_field() {
    let mut known: Vec<&str> = kiln::list_options().iter().map(|o| o.name).collect();
    let mut tried: Vec<&str> = CASES.iter().map(|c| c.name).collect();
    known.sort_unstable();
    tried.sort_unstable();
    assert_eq!(known, tried);
    let plain = Settings::new().expect("the environment");
    for case in CASES {
        let mut settings = plain.clone();
        let remarks = settings.set(case.name, case.value).unwrap_or_else(|e| panic!("{e}"));
        assert!(remarks.is_empty() && !case.sets.is_empty(), "{}: {remarks:?}", case.name);
        let changed: Vec<(&str, String)> = all(&settings)
            .into_iter()
            .zip(all(&plain))
            .filter(|(a, b)| a != b)
            .map(|(a, _)| a)
            .collect();
        let want: Vec<(&str, String)> =
            case.sets.iter().map(|(f, v)| (*f, v.to_string())).collect();
        assert!(
            changed.len() == want.len() && want.iter().all(|w| changed.contains(w)),
            "{}: {changed:?}, not {want:?}",
            case.name
        );
        let info = kiln::list_options().into_iter().find(|o| o.name == case.name).expect("a row");
        // Options of files go to the compiler, the rest to the function.
        assert!(
            !info.files || case.sets.iter().any(|(f, _)| f.starts_with("options.")),
            "{}",
            case.name
        );
        if let Some(wrong) = case.wrong {
            let said = settings.set(case.name, wrong).expect_err("no such value").to_string();
            assert!(said.starts_with(&format!("option {} is '{wrong}'", case.name)), "{said}");
        }
    }
    // A mode replaces the one before.
    let mut settings = plain.clone();
    for mode in ["max-autotune", "max-autotune-no-cudagraphs", "default"] {
        settings.set_mode(mode).expect("a mode");
    }
    assert_eq!(all(&settings), all(&plain));
}

/// Prints the settings of the environment.
#[test]
#[ignore = "a part of the next"]
fn child() {
    let f = kiln::compile(|x: Tensor| x.relu());
    match (f.check(), Options::from_env()) {
        (Ok(()), Ok(options)) => println!("{:?}\n{:?}", all(f.settings()), of_files(&options)),
        (function, file) => {
            let [function, file] = [function.err(), file.err()].map(|e| e.map(|e| e.to_string()));
            println!("{function:?}\n{file:?}")
        }
    }
}

#[test]
fn each_option_has_a_variable() {
    crate::watchdog::arm();
    let said = |variable: &str, value: &str| {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command
            .args(["front::table::child", "--exact", "--ignored", "--nocapture"])
            .env("KILN_CACHE_DIR", "off")
            .env(variable, value);
        String::from_utf8_lossy(&command.output().expect("it runs").stdout).into_owned()
    };
    let mut plain = Settings::new().expect("the environment");
    plain.set("cache_dir", "off").expect("a value");
    for case in CASES {
        let info = kiln::list_options().into_iter().find(|o| o.name == case.name).expect("a row");
        let mut settings = plain.clone();
        settings.set(case.name, case.value).expect("a value");
        let text = said(info.variable, case.value);
        assert!(
            text.contains(&format!("{:?}\n", all(&settings))),
            "{}, a function: {text}",
            info.variable
        );
        assert!(
            text.contains(&format!("{:?}\n", of_files(&settings.for_file()))),
            "{}, a file: {text}",
            info.variable
        );
        let Some(wrong) = case.wrong else { continue };
        let out = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .arg("options")
            .env(info.variable, wrong)
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.code() == Some(2)
                && text.contains(&format!("{} is '{wrong}'", info.variable)),
            "{text}"
        );
        // Rejected values and unknown options.
        let why = match case.name {
            "mode" | "target" | "backend" => "there is no ",
            _ => info.kind,
        };
        assert!(text.contains(why), "{text}");
    }
    let text = said("KILN_TF32", "yes");
    assert_eq!(
        text.matches("Some(\"KILN_TF32 is 'yes', not true or false\")").count(),
        2,
        "{text}"
    );
    assert!(
        said("KILN_TF32", "").contains(&format!("{:?}\n", all(&plain))),
        "an empty variable is none"
    );
}

/// Options with methods of their own act by name as those do.
#[test]
fn options_by_name_are_the_methods() {
    crate::watchdog::arm();
    let f =
        |name: &str, value: &str| kiln::compile(|x: Tensor| x.relu() + 1).options([(name, value)]);
    let x = counting(&[3]);
    let called = |name: &str, value: &str| {
        let f = f(name, value);
        assert_eq!(numbers(&f.call(&x).expect("a result")), [1.0, 2.0, 3.0], "{name}");
        f
    };
    let interpreted = called("backend", "interpreter");
    assert!(interpreted.programs() == 1 && interpreted.explain().graphs[0].kernels.is_empty());
    assert_eq!(
        (called("backend", "eager").programs(), called("disable", "true").programs()),
        (0, 0)
    );
    assert_eq!(
        (
            called("dynamic", "true").guards()[0].symbols.len(),
            called("dynamic", "false").guards()[0].symbols.len()
        ),
        (1, 0)
    );
    // No machine has that many, and most have none.
    assert_eq!(f("device", "cuda:99").call(&x).err().map(|e| e.exit()), Some(kiln::Exit::Device));
    let read =
        kiln::compile(|x: Tensor| x.to_vec::<f32>().map(|_| x)).options([("fullgraph", "true")]);
    assert!(message(read.call(&x)).contains("fullgraph"));
}
