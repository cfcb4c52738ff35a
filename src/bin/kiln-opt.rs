//! kiln-opt
use kiln::dialects::ir::*;
fn main() {
    let c = Context::new();
    let mut s = vec![];
    std::io::Read::read_to_end(&mut std::io::stdin(), &mut s).unwrap();
    let (m, _) = match Module::parse(c.ctx(), &s, "-") {
        Ok(m) => m,
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(2)
        }
    };
    let p = std::env::args().nth(1).unwrap_or("builtin.module()".into());
    match kiln::passes::run_pipeline(&m, &p, &Default::default(), &|_, _, _| ()) {
        Ok(r) => eprint!("{}", r.table()),
        Err(e) => eprintln!("{e}"),
    }
    print!("{}", m.print(PrintOptions::default()));
}
