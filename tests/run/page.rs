//! A dump's page in a browser: what its script renders. Skipped with a message without chromium.
use super::{models, options};
use kiln::{Options, load};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome-headless-shell"];
    std::env::split_paths(&path).flat_map(|dir| names.map(|n| dir.join(n))).find(|p| p.is_file())
}

/// The page at an address after its script ran, without the script.
fn dom(browser: &Path, page: &Path, at: &str) -> String {
    let own = tempfile::tempdir().unwrap();
    let profile = format!("--user-data-dir={}", own.path().display());
    let out = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            &profile,
        ])
        .args(["--dump-dom", &format!("file://{}#{at}", page.display())])
        .output()
        .expect("it runs");
    let all = String::from_utf8_lossy(&out.stdout).into_owned();
    let shown = all.split("<script id=\"data\"").next().unwrap_or_default().to_string();
    assert!(shown.contains("<nav"), "{at}: {all}{}", String::from_utf8_lossy(&out.stderr));
    shown
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[test]
fn a_dumps_page_shows_passes_diffs_the_graph_and_times() {
    crate::watchdog::arm();
    let Some(browser) = browser() else {
        eprintln!("skipped: there is no chromium in PATH");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    load(models().join("mlp.pt2"))
        .unwrap()
        .compile(&Options { dump: Some(dir.path().into()), ..options(2) })
        .unwrap();
    let page = dir.path().join("mlp-0/index.html");
    let text = std::fs::read_to_string(&page).unwrap();
    let data = text
        .split("<script id=\"data\" type=\"application/json\">")
        .nth(1)
        .and_then(|s| s.split("</script>").next())
        .expect("data");
    let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
    let list = |name: &str| data[name].as_array().expect("a list").clone();
    let (passes, kernels, timings, texts) =
        (list("passes"), list("kernels"), list("timings"), list("texts"));

    // The first view: every pass in the list, and each kernel with its time.
    let shown = dom(&browser, &page, "");
    assert_eq!(shown.matches("<button").count(), 3 + passes.len(), "{shown}");
    let named = passes.iter().filter(|p| {
        shown.contains(&format!("<span>{}</span>", p["pass"].as_str().expect("a flag")))
    });
    assert_eq!(named.count(), passes.len(), "{shown}");
    for k in &kernels {
        let (name, time) =
            (escaped(k["name"].as_str().expect("a name")), k["time_us"].as_f64().expect("a time"));
        let row = shown
            .split(&format!("<td>{name}</td>"))
            .nth(1)
            .unwrap_or_else(|| panic!("no {name} in {shown}"));
        let cell = row
            .split("<td class=\"n\">")
            .nth(1)
            .and_then(|c| c.split("</td>").next())
            .expect("a number");
        let written: f64 = cell.parse().expect("a number");
        assert!((written - time).abs() < 0.051, "{k}: {written}");
    }

    // A pass that changed its IR: deleted and added lines are marked, and nothing else.
    let text = |i: &serde_json::Value| {
        texts[i.as_u64().expect("a number") as usize].as_str().expect("text").to_string()
    };
    let changed = passes
        .iter()
        .position(|p| p["pass"] == "kiln-fuse" && p["changed"] == true)
        .expect("kiln-fuse has changed the IR");
    let (before, after) = (text(&passes[changed]["before"]), text(&passes[changed]["after"]));
    let shown = dom(&browser, &page, &format!("pass-{changed}"));
    let marked = |class: &str, sign: &str| -> Vec<String> {
        let start = format!("<div class=\"{class}\">");
        let parts = shown.split(&start).skip(1);
        parts
            .map(|p| {
                p.split("</div>")
                    .next()
                    .unwrap_or_default()
                    .strip_prefix(sign)
                    .expect("a sign")
                    .to_string()
            })
            .collect()
    };
    let (added, gone) = (marked("add", "+ "), marked("del", "- "));
    assert!(
        !added.is_empty() && !gone.is_empty() && shown.contains("<h1>kiln-fuse</h1>"),
        "{shown}"
    );
    let lines = |t: &str| t.lines().map(escaped).collect::<Vec<_>>();
    assert!(
        added.iter().all(|l| lines(&after).contains(l))
            && gone.iter().all(|l| lines(&before).contains(l)),
        "{shown}"
    );
    assert_eq!(before.lines().count() + added.len(), after.lines().count() + gone.len(), "{shown}");

    let shown = dom(&browser, &page, "fusion-graph");
    assert_eq!(
        (shown.matches("<svg").count(), shown.matches("<rect").count()),
        (1, kernels.len()),
        "{shown}"
    );
    assert!(kernels.len() < 2 || shown.contains("<path"), "{shown}");
    let shown = dom(&browser, &page, "times");
    assert_eq!(shown.matches("<tr>").count(), 2 + list("parts").len() + timings.len(), "{shown}");
}
