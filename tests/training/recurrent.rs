//! Recurrent layers and their gradients against PyTorch's (`record.py`).
use super::network::{Recorded, close};
use kiln::{
    Error, Tensor,
    nn::{self, Module, Recurrent, Scope},
    tensor::{Cell, Recurrence, TraceError},
};

fn layers(name: &str, cell: Cell, form: Recurrence) -> Result<(), Error> {
    let (recorded, kind) =
        (Recorded::of_file("recurrent"), if form.layers == 1 { "one" } else { "two" });
    let get = |what: &str| recorded.get(&format!("{name}/{kind}/{what}"));
    let net = Recurrent::new(&Scope::root(), cell, 3, 5, form);
    let weights = net.parameters();
    let values: Vec<Tensor> = weights.iter().map(|w| get(w.name())).collect();
    nn::assign(&weights, &values)?;
    let x = recorded.get("x");
    let state: Vec<Tensor> =
        (0..1 + usize::from(cell == Cell::Lstm)).map(|i| get(&format!("state/{i}"))).collect();
    let f = |x: Tensor, state: Vec<Tensor>| -> Result<Tensor, TraceError> {
        let (y, last) = net.run(&x, Some(state));
        let squares = last.into_iter().map(|t| t.square().sum(.., false));
        Ok(squares.fold(y.square().sum(.., false), |a, b| a + b))
    };
    let (y, last) = net.run(&x, Some(state.clone()));
    close("outputs", &y, &get("y"));
    last.iter().enumerate().for_each(|(i, t)| close("a state", t, &get(&format!("last/{i}"))));
    let step = kiln::compile(|x: Tensor, state: Vec<Tensor>| -> Result<_, TraceError> {
        let by_x = kiln::grad(|x: Tensor| f(x, state.clone())).call(&x)?;
        let (_, by) =
            nn::value_and_grad(weights.clone(), |x: Tensor| f(x, state.clone())).call(&x)?;
        Ok((by_x, by))
    });
    let (by_x, by) = step.fullgraph(true).call((x, state))?;
    close("by the input", &by_x, &get("by/x"));
    for (w, by) in weights.iter().zip(&by) {
        close(w.name(), by, &get(&format!("by/{}", w.name())));
    }
    Ok(())
}

#[test]
fn recurrent_layers_are_pytorchs() -> Result<(), Error> {
    let one = Recurrence { biases: false, ..Recurrence::default() };
    let two = Recurrence { layers: 2, bidirectional: true, ..Recurrence::default() };
    let cells =
        [("lstm", Cell::Lstm), ("gru", Cell::Gru), ("tanh", Cell::Tanh), ("relu", Cell::Relu)];
    for (name, cell) in cells {
        for form in [one, two] {
            layers(name, cell, form)?;
        }
    }
    let net = Recurrent::new(&Scope::root(), Cell::Gru, 3, 5, one);
    let x = Tensor::from_slice(&[1, 2, 3], &[0.5f32; 6])?;
    assert_eq!((&net).compile().call(&x)?.type_name(), "f32[1, 2, 5]");
    let none = x.recurrent(Cell::Lstm, vec![], vec![], one).0.check().err();
    assert!(none.is_some_and(|e| e.to_string().contains("0 tensors as its state, not 2")));
    Ok(())
}
