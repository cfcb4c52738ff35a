//! The launch graph as SVG, in layers from top to bottom (Sugiyama, Tagawa and Toda, "Methods for
//! visual understanding of hierarchical system structures", 1981). Arguments are above the launches
//! that read them, results at the bottom.
use crate::runtime::{
    Program,
    program::{Kernel, Tensor},
};
use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write,
    time::Duration,
};

/// Box size of a launch, in pixels.
const WIDTH: f64 = 236.0;
const HEIGHT: f64 = 56.0;
/// Box size of arguments and results.
const IO_WIDTH: f64 = 170.0;
const IO_HEIGHT: f64 = 36.0;
/// Distance between layers, and between neighbours in a layer.
const STEP: f64 = 92.0;
const GAP: f64 = 18.0;
/// Width that an edge takes where it crosses a layer.
const LANE: f64 = 6.0;
const MARGIN: f64 = 16.0;
/// Colours by kernel kind, in name order.
const COLOURS: [&str; 8] =
    ["#cfe3ff", "#d9f2d9", "#fff2cc", "#f8d9e6", "#e3d9f8", "#d2f0f0", "#fadcc8", "#e8f0c8"];

/// Contents of a node.
enum Body<'a> {
    Argument(&'a Tensor),
    /// A launch: its index over all parts, and its kernel.
    Launch(usize, &'a Kernel),
    Result(&'a Tensor),
    /// A dummy node of an edge that spans several layers.
    Lane,
}

struct Node<'a> {
    /// The (sub)program that defines its sizes.
    part: &'a Program,
    body: Body<'a>,
    layer: usize,
    /// Predecessors: the nodes that it reads.
    from: Vec<usize>,
    /// Horizontal centre.
    x: f64,
}

impl Node<'_> {
    fn width(&self) -> f64 {
        match self.body {
            Body::Launch(..) => WIDTH,
            Body::Lane => LANE,
            _ => IO_WIDTH,
        }
    }
    fn height(&self) -> f64 {
        match self.body {
            Body::Launch(..) | Body::Lane => HEIGHT,
            _ => IO_HEIGHT,
        }
    }
    fn y(&self) -> f64 {
        MARGIN + 30.0 + self.layer as f64 * STEP + (HEIGHT - self.height()) / 2.0
    }
}

/// Draws the launches of a program and the data flow between them. `times`: one per launch, or
/// empty. Weights are omitted. Programs called by control flow are stacked below each other.
pub fn svg(p: &Program, times: &[Duration]) -> String {
    let (mut nodes, mut launch, mut top) = (vec![], 0, 0);
    for part in p.parts() {
        let start = nodes.len();
        read(part, launch, &mut nodes);
        launch += part.kernels.len();
        nodes[start..].iter_mut().for_each(|n| n.layer += top);
        let empty = nodes[start..].iter().map(|n| n.layer).min().unwrap_or(top) - top;
        nodes[start..].iter_mut().for_each(|n| n.layer -= empty);
        top = nodes[start..].iter().map(|n| n.layer + 1).max().unwrap_or(top);
    }
    lanes(&mut nodes);
    position_nodes(&mut nodes);
    draw(&nodes, times)
}

/// Nodes of one program. Each is a layer below everything that it reads. `first` is the index of
/// its first launch.
fn read<'a>(p: &'a Program, first: usize, nodes: &mut Vec<Node<'a>>) {
    let start = nodes.len();
    let read: BTreeSet<usize> = p.kernels.iter().flat_map(|k| k.inputs.iter().copied()).collect();
    let mut add = |body, layer, from| {
        nodes.push(Node { part: p, body, layer, from, x: 0.0 });
        nodes.len() - 1
    };
    let arguments: HashMap<usize, usize> = read
        .into_iter()
        .filter_map(|i| Some((i, add(Body::Argument(p.inputs.get(i)?), 0, vec![]))))
        .collect();
    let mut launches: Vec<usize> = vec![];
    let mut layers: Vec<usize> = vec![];
    for (i, k) in p.kernels.iter().enumerate() {
        let before = k.reads.iter().filter(|r| **r < i).copied();
        let layer = before.clone().map(|r| layers[r] + 1).max().unwrap_or(1).max(1);
        let given = k.inputs.iter().filter_map(|n| arguments.get(n).copied());
        let from = before.map(|r| launches[r]).chain(given).collect();
        launches.push(add(Body::Launch(first + i, k), layer, from));
        layers.push(layer);
    }
    for (i, k) in p.kernels.iter().enumerate() {
        for result in k.outputs.iter().filter_map(|n| p.outputs.get(*n)) {
            add(Body::Result(result), layers[i] + 1, vec![launches[i]]);
        }
    }
    // An argument is placed right above its first reader.
    for i in arguments.into_values() {
        let readers = nodes[start..].iter().filter(|n| n.from.contains(&i));
        let layer = readers.map(|n| n.layer).min().unwrap_or(1) - 1;
        nodes[i].layer = layer;
    }
}

/// Routes long edges through the layers between, one dummy node per layer for all readers.
fn lanes(nodes: &mut Vec<Node>) {
    for source in 0..nodes.len() {
        let mut readers: Vec<usize> =
            (0..nodes.len()).filter(|n| nodes[*n].from.contains(&source)).collect();
        readers.sort_by_key(|n| nodes[*n].layer);
        let (mut last, mut layer) = (source, nodes[source].layer);
        for reader in readers {
            while layer + 1 < nodes[reader].layer {
                layer += 1;
                let part = nodes[source].part;
                nodes.push(Node { part, body: Body::Lane, layer, from: vec![last], x: 0.0 });
                last = nodes.len() - 1;
            }
            let from = nodes[reader].from.iter_mut().filter(|f| **f == source);
            from.for_each(|f| *f = last);
        }
    }
}

/// Places the nodes of each layer near the mean of their predecessors, without overlaps.
fn position_nodes(nodes: &mut [Node]) {
    let last = nodes.iter().map(|n| n.layer).max().unwrap_or(0);
    for layer in 0..=last {
        let mut row: Vec<(f64, usize)> = vec![];
        for i in (0..nodes.len()).filter(|i| nodes[*i].layer == layer) {
            let from = &nodes[i].from;
            let sum: f64 = from.iter().map(|f| nodes[*f].x).sum();
            row.push((if from.is_empty() { 0.0 } else { sum / from.len() as f64 }, i));
        }
        row.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (mut edge, mut error) = (f64::NEG_INFINITY, 0.0);
        for (wanted, i) in &row {
            let half = nodes[*i].width() / 2.0;
            let x = wanted.max(edge + GAP + half);
            (nodes[*i].x, edge) = (x, x + half);
            error += x - wanted;
        }
        let shift = error / row.len().max(1) as f64;
        row.iter().for_each(|(_, i)| nodes[*i].x -= shift);
    }
    let left = nodes.iter().map(|n| n.x - n.width() / 2.0).fold(f64::INFINITY, f64::min);
    nodes.iter_mut().for_each(|n| n.x += MARGIN - left);
}

fn draw(nodes: &[Node], times: &[Duration]) -> String {
    let kinds: BTreeSet<&str> = nodes
        .iter()
        .filter_map(|n| if let Body::Launch(_, k) = n.body { Some(k.kind.as_str()) } else { None })
        .collect();
    let kinds: Vec<&str> = kinds.into_iter().collect();
    let legend: f64 = kinds.iter().map(|k| 34.0 + 7.0 * k.chars().count() as f64).sum::<f64>();
    let right = nodes.iter().map(|n| n.x + n.width() / 2.0).fold(0.0, f64::max);
    let width = right.max(legend + MARGIN + 210.0) + MARGIN;
    let bottom = nodes.iter().map(|n| n.y() + n.height()).fold(0.0, f64::max) + MARGIN;
    let mut s = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{bottom:.0}\" \
         viewBox=\"0 0 {width:.0} {bottom:.0}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"#557\"/></marker>\
         </defs>\n"
    );
    let mut x = MARGIN;
    let mut sample = |fill: &str, name: &str, s: &mut String| {
        let _ = writeln!(
            s,
            "<rect class=\"legend\" x=\"{x:.0}\" y=\"10\" width=\"14\" height=\"14\" \
             fill=\"{fill}\" stroke=\"#888\"/><text x=\"{:.0}\" y=\"21\">{}</text>",
            x + 19.0,
            escaped(name)
        );
        x += 34.0 + 7.0 * name.chars().count() as f64;
    };
    for (i, kind) in kinds.iter().enumerate() {
        sample(COLOURS[i % COLOURS.len()], kind, &mut s);
    }
    sample("#fff", "argument or result", &mut s);
    for n in nodes {
        for f in &n.from {
            edge(&nodes[*f], n, &mut s);
        }
    }
    for n in nodes {
        let colour = |k: &Kernel| {
            let at = kinds.iter().position(|kind| *kind == k.kind).unwrap_or(0);
            COLOURS[at % COLOURS.len()]
        };
        match &n.body {
            Body::Lane => {
                let (x, y) = (n.x, n.y());
                let down = format!("M{x:.0} {y:.0} V{:.0}", y + HEIGHT);
                let _ = writeln!(s, "<path d=\"{down}\" fill=\"none\" stroke=\"#557\"/>");
            }
            Body::Launch(i, k) => launch(n, *i, k, colour(k), times.get(*i), &mut s),
            Body::Argument(t) => tensor(n, "argument", t, &mut s),
            Body::Result(t) => tensor(n, "result", t, &mut s),
        }
    }
    s + "</svg>\n"
}

/// Draws an edge from the bottom of a node to the top of a node in the next layer.
fn edge(from: &Node, to: &Node, s: &mut String) {
    let (a, b) = (from.y() + from.height(), to.y());
    let middle = (a + b) / 2.0;
    let head = if matches!(to.body, Body::Lane) { "" } else { " marker-end=\"url(#arrow)\"" };
    let _ = writeln!(
        s,
        "<path d=\"M{0:.0} {a:.0} C{0:.0} {middle:.0} {1:.0} {middle:.0} {1:.0} {b:.0}\" \
         fill=\"none\" stroke=\"#557\"{head}/>",
        from.x, to.x
    );
}

fn launch(n: &Node, i: usize, k: &Kernel, fill: &str, time: Option<&Duration>, s: &mut String) {
    let (x, y) = (n.x - WIDTH / 2.0, n.y());
    let shapes: Vec<String> = k.results.iter().map(|t| shape(n.part, t)).collect();
    let time = time.map_or(String::new(), |t| format!("{:.1} µs · ", t.as_secs_f64() * 1e6));
    let ops = k.ops.join(" ");
    let about = [k.name.as_str(), &k.kind, &ops, &shapes.join(", "), &k.sources.join(", ")];
    let _ = writeln!(
        s,
        "<g class=\"launch\" data-launch=\"{i}\"><title>{}</title><rect x=\"{x:.0}\" y=\"{y:.0}\" \
         width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"5\" fill=\"{fill}\" stroke=\"#888\"/>",
        escaped(&about.join("\n"))
    );
    let lines = [
        (16.0, " font-weight=\"bold\"", cut(&k.name, 32)),
        (32.0, " fill=\"#444\"", cut(&ops, 38)),
        (48.0, "", cut(&format!("{time}{}", shapes.join(", ")), 38)),
    ];
    for (down, style, text) in lines {
        let (x, y, text) = (x + 8.0, y + down, escaped(&text));
        let _ = writeln!(s, "<text x=\"{x:.0}\" y=\"{y:.0}\"{style}>{text}</text>");
    }
    s.push_str("</g>\n");
}

fn tensor(n: &Node, class: &str, t: &Tensor, s: &mut String) {
    let (x, y) = (n.x - IO_WIDTH / 2.0, n.y());
    let (name, sizes) = (escaped(&cut(&t.name, 26)), escaped(&cut(&shape(n.part, t), 28)));
    let full = escaped(&format!("{class} {}: {}", t.name, shape(n.part, t)));
    let _ = writeln!(
        s,
        "<g class=\"{class}\"><title>{full}</title><rect x=\"{x:.0}\" y=\"{y:.0}\" \
         width=\"{IO_WIDTH}\" height=\"{IO_HEIGHT}\" rx=\"18\" fill=\"#fff\" stroke=\"#888\"/>\
         <text x=\"{0:.0}\" y=\"{1:.0}\" text-anchor=\"middle\">{name}</text>\
         <text x=\"{0:.0}\" y=\"{2:.0}\" text-anchor=\"middle\" fill=\"#444\">{sizes}</text></g>",
        n.x,
        y + 15.0,
        y + 29.0
    );
}

/// Element type and sizes, such as `f32 8×512`.
fn shape(p: &Program, t: &Tensor) -> String {
    let sizes: Vec<String> = t.dims.iter().map(|d| p.size_text(*d)).collect();
    format!("{} {}", t.dtype, if sizes.is_empty() { "scalar".into() } else { sizes.join("×") })
}

/// The text, truncated to this many characters.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
