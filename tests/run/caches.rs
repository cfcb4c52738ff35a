//! The cache of whole programs: warm starts, corruption, size limit, several processes, and its
//! command.
use super::{agree, file, models, options, walk};
use kiln::{Options, load, model::CachePolicy};
use std::{
    path::Path,
    process::{Command, Output},
};

fn kiln(cache: &Path, size: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command
        .args(args)
        .current_dir(models())
        .env("KILN_CACHE_DIR", cache)
        .env("KILN_CACHE_SIZE", size)
        .output()
        .expect("it runs")
}
fn text(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

/// A flipped byte in the program's entry is detected and logged, and the program recompiled.
#[test]
fn a_flipped_byte_is_detected_and_logged() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { cache: CachePolicy::Dir(dir.path().into()), ..options(1) };
    let model = || load(models().join("elementwise.pt2")).unwrap();
    model().compile(&options).unwrap();
    let is_program = |p: &&std::path::PathBuf| {
        std::fs::read(p).unwrap().windows(13).any(|w| w == b"manifest.json")
    };
    let entries = walk(dir.path());
    let path = entries.iter().find(is_program).expect("the program's entry");
    let good = std::fs::read(path).unwrap();
    for at in [0, 9, 15, 30, 60, good.len() / 3, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 4;
        std::fs::write(path, &bad).unwrap();
        let exe = model().compile(&options).unwrap();
        assert!(exe.times().compile.is_some(), "byte {at} was believed");
        let told: Vec<String> = exe.times().remarks.iter().map(|r| r.to_string()).collect();
        assert!(told.len() == 1 && told[0].contains("cache"), "byte {at}: {told:?}");
        assert!(
            model().compile(&options).unwrap().times().compile.is_none(),
            "it is not made anew"
        );
    }
}

/// Eviction is LRU, and evicted programs are recompiled.
#[test]
fn the_cache_respects_its_size_limit() {
    let dir = tempfile::tempdir().unwrap();
    let with = |bytes| Options {
        cache: CachePolicy::Dir(dir.path().into()),
        cache_bytes: bytes,
        ..options(1)
    };
    let entries =
        || walk(dir.path()).into_iter().filter(|p| p.extension().is_some_and(|e| e == "kiln"));
    let size = || entries().map(|p| p.metadata().unwrap().len()).sum::<u64>();
    let compile = |model: &str, bytes| {
        load(models().join(format!("{model}.pt2"))).unwrap().compile(&with(bytes)).unwrap()
    };
    compile("lenet", u64::MAX);
    let last = size();
    compile("mlp", 0);
    assert_eq!(size(), 0);
    compile("elementwise", u64::MAX);
    let small = size();
    compile("mlp", u64::MAX);
    // After an eviction, room for two of three and for a part of the oldest.
    let left = size() - small + last + small / 2;
    let limit = left.div_ceil(15) * 16;
    for path in entries() {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(1000))
            .unwrap();
    }
    // Used again, so the other one's entries are the oldest.
    assert!(compile("mlp", u64::MAX).times().compile.is_none());
    compile("lenet", limit);
    assert!(size() <= left, "{} of {left}", size());
    assert!(
        compile("mlp", u64::MAX).times().compile.is_none(),
        "what was used last is still there"
    );
    // Of `elementwise` a part is left, which part depends on hashes, so it may not be stored again.
    compile("mlp.static", 0);
    assert_eq!(size(), 0);
}

/// Options that change code change the key.
#[test]
fn disabled_passes_change_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let all = Options { cache: CachePolicy::Dir(dir.path().into()), ..options(1) };
    let model = || load(models().join("mlp.pt2")).unwrap();
    let with = model().compile(&all).unwrap();
    let less = Options { disable: vec!["kiln-pack".into(), "kiln-freeze".into()], ..all };
    let without = model().compile(&less).unwrap();
    assert!(without.times().compile.is_some() && without.program() != with.program());
    agree(&without, &file("mlp"), "without packing");
}

#[test]
fn two_concurrent_processes_and_a_warm_third() {
    let dir = tempfile::tempdir().unwrap();
    let run = || {
        kiln(
            dir.path(),
            "1G",
            &[
                "run",
                "mlp.pt2",
                "--inputs",
                "mlp.safetensors",
                "--expect",
                "mlp.safetensors",
                "--repeat",
                "1",
            ],
        )
    };
    std::thread::scope(|s| {
        let both = [s.spawn(run), s.spawn(run)];
        for one in both {
            let out = one.join().unwrap();
            assert!(
                out.status.success() && text(&out).contains("agrees with PyTorch"),
                "{}",
                text(&out)
            );
        }
    });
    let third = text(&run());
    assert!(
        third.contains("from the cache in") && third.contains("agrees with PyTorch"),
        "{third}"
    );
}

#[test]
fn the_command_counts_clears_exports_and_imports() {
    let (here, there, file) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let exported = file.path().join("all.kpkg");
    let exported = exported.to_str().unwrap();
    let run = |dir: &Path| text(&kiln(dir, "1G", &["run", "elementwise.pt2", "--repeat", "1"]));
    assert!(run(here.path()).contains("compiled in"));
    let stat = text(&kiln(here.path(), "1G", &["cache", "stat"]));
    assert!(stat.contains("1 programs") && stat.contains("at most 1048576 KiB"), "{stat}");
    assert!(text(&kiln(here.path(), "1G", &["cache", "export", exported])).contains("entries"));
    assert!(
        text(&kiln(there.path(), "1G", &["cache", "import", exported])).contains("new entries")
    );
    assert!(run(there.path()).contains("from the cache in"), "what was imported is used");
    assert!(text(&kiln(there.path(), "1G", &["cache", "clear"])).contains("freed"));
    assert!(text(&kiln(there.path(), "1G", &["cache", "stat"])).contains("0 programs"));
    assert!(run(there.path()).contains("compiled in"));
    std::fs::write(exported, "no archive").unwrap();
    assert_eq!(kiln(there.path(), "1G", &["cache", "import", exported]).status.code(), Some(2));
    let wrong = kiln(there.path(), "much", &["cache", "stat"]);
    assert!(
        wrong.status.code() == Some(2) && text(&wrong).contains("KILN_CACHE_SIZE is 'much'"),
        "{}",
        text(&wrong)
    );
}

/// Channels by name; an unknown one is an error with a suggestion.
#[test]
fn the_log_has_channels() {
    let dir = tempfile::tempdir().unwrap();
    let run = |log: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        command
            .args(["run", "elementwise.pt2", "--repeat", "1"])
            .current_dir(models())
            .env("KILN_CACHE_DIR", dir.path())
            .env("KILN_LOG", log);
        command.output().expect("it runs")
    };
    let out = run("fusion,schedule,+cache,output_code");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    for part in
        ["kiln::fusion", "kiln::schedule", "kiln::cache: miss", "kiln::output_code", "llvm.func"]
    {
        assert!(said.contains(part), "no '{part}' in\n{said}");
    }
    let out = run("+cache");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("kiln::cache: hit") && !said.contains("kiln::fusion"), "{said}");
    assert!(run("").stderr.is_empty());
    let out = run("fusions");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        out.status.code() == Some(2) && said.contains("'fusions'") && said.contains("'fusion'"),
        "{said}"
    );
}
