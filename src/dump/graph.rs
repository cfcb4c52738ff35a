//! The graph of launches as SVG.
use crate::runtime::{Program, program::Kernel};
use std::fmt::Write;

const WIDTH: usize = 900;
const ROW: usize = 46;

/// Launches from top to bottom, those of programs that control flow calls behind one another, each
/// with what it does, and an arc to each launch that reads its result.
pub fn svg(p: &Program) -> String {
    let parts = p.parts();
    // Launches count from the start of their own program.
    let starts =
        parts.iter().scan(0, |next, p| Some(std::mem::replace(next, *next + p.kernels.len())));
    let launches: Vec<(usize, &Kernel)> = parts
        .iter()
        .zip(starts)
        .flat_map(|(p, start)| p.kernels.iter().map(move |k| (start, k)))
        .collect();
    let height = ROW * launches.len() + 20;
    let mut s = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n"
    );
    let colour = |kind: &str| match kind {
        "contract" => "#cfe3ff",
        "rows" => "#d9f2d9",
        "reduce" => "#e8f7c8",
        "pointwise" => "#fff2cc",
        _ => "#eeeeee",
    };
    let middle = |i: usize| 10 + i * ROW + (ROW - 10) / 2;
    for (i, (start, k)) in launches.iter().enumerate() {
        let y = 10 + i * ROW;
        let _ = writeln!(
            s,
            "<rect x=\"200\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"5\" fill=\"{}\" stroke=\"#888\"/>",
            WIDTH - 220,
            ROW - 10,
            colour(&k.kind)
        );
        let _ = writeln!(
            s,
            "<text x=\"210\" y=\"{}\" font-weight=\"bold\">{}</text>",
            y + 15,
            escaped(&k.name)
        );
        let ops = k.ops.join(" ");
        let shown: String = ops.chars().take(100).collect();
        let _ = writeln!(
            s,
            "<text x=\"210\" y=\"{}\" fill=\"#444\">{}</text>",
            y + 30,
            escaped(&shown)
        );
        for from in &k.reads {
            let from = start + from;
            let (a, b) = (middle(from), middle(i));
            let bow = 200usize.saturating_sub(20 + 12 * i.abs_diff(from).min(14));
            let _ = writeln!(
                s,
                "<path d=\"M200 {a} C{bow} {a} {bow} {b} 200 {b}\" fill=\"none\" stroke=\"#668\"/>"
            );
        }
    }
    s + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
