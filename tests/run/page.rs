//! A dump's page in a browser: what its script renders. Skipped with a message without chromium.
use super::{models, options};
use base64::{Engine, prelude::BASE64_STANDARD};
use kiln::{Options, load};
use std::{
    io::Read,
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
            // The texts of passes are unpacked asynchronously.
            "--virtual-time-budget=20000",
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

/// What an element of the page has between its tags.
fn element<'a>(page: &'a str, start: &str) -> &'a str {
    let inside = page.split(start).nth(1).and_then(|s| s.split("</script>").next());
    inside.unwrap_or_else(|| panic!("there is no {start}"))
}

/// The texts that a page holds packed.
pub fn texts(page: &str) -> Vec<String> {
    let packed = element(page, "<script id=\"texts\" type=\"text/plain\">");
    let packed = BASE64_STANDARD.decode(packed).expect("base64");
    let mut json = String::new();
    flate2::read::ZlibDecoder::new(&packed[..]).read_to_string(&mut json).expect("zlib");
    serde_json::from_str(&json).expect("a list of texts")
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
    let data = element(&text, "<script id=\"data\" type=\"application/json\">");
    let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
    let list = |name: &str| data[name].as_array().expect("a list").clone();
    let (passes, kernels, timings, texts) =
        (list("passes"), list("kernels"), list("timings"), texts(&text));
    // Each text once, and packed: well below what the files hold.
    let whole: usize = texts.iter().map(String::len).sum();
    assert!(text.len() < whole / 3, "{} bytes for texts of {whole}", text.len());

    // The first view: every pass in the list, and each kernel with its time.
    let shown = dom(&browser, &page, "");
    assert_eq!(shown.matches("data-at=").count(), 3 + passes.len(), "{shown}");
    let named = passes.iter().filter(|p| {
        shown.contains(&format!("<span>{}</span>", p["pass"].as_str().expect("a flag")))
    });
    assert_eq!(named.count(), passes.len(), "{shown}");
    for k in &kernels {
        let (name, time) =
            (escaped(k["name"].as_str().expect("a name")), k["time_us"].as_f64().expect("a time"));
        let row = shown
            .split(&format!("<td><a>{name}</a></td>"))
            .nth(1)
            .unwrap_or_else(|| panic!("no {name} in {shown}"));
        let cell = row
            .split("<td class=\"n\">")
            .nth(1)
            .and_then(|c| c.split("</td>").next())
            .expect("a number");
        let written: f64 = cell.parse().expect("a number");
        assert!((written - time).abs() < 0.051, "{k}: {written}");
        let part = k["part"].as_str().expect("a part");
        assert!(passes.iter().any(|p| p["part"] == part), "{k} has no passes");
    }
    // The total stands below, whatever the order.
    let total: f64 = kernels.iter().filter_map(|k| k["time_us"].as_f64()).sum();
    let row = shown.split("<tr class=\"total\">").nth(1).expect("a total");
    assert!(row.contains(&format!("<td class=\"n\">{total:.1}</td>")), "{total}: {row}");

    // A pass that has changed its IR: what is gone is gone, what is new is new, and nothing else is
    // marked.
    let text = |i: &serde_json::Value| texts[i.as_u64().expect("a number") as usize].clone();
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
    let launches = shown.matches("<g class=\"launch\"").count();
    assert_eq!((shown.matches("<svg").count(), launches), (1, kernels.len()), "{shown}");
    for part in ["<g class=\"argument\"", "<g class=\"result\"", "marker-end", "µs · f32 "] {
        assert!(shown.contains(part), "no {part} in {shown}");
    }
    assert!(kernels.len() < 2 || shown.contains("<path"), "{shown}");
    let shown = dom(&browser, &page, "times");
    assert_eq!(shown.matches("<tr").count(), 3 + list("parts").len() + timings.len(), "{shown}");
}
