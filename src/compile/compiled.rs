//! A compiled function: its settings, its programs, and its remarks.
use super::{
    Arguments, Function, Remark, Settings, Topic, background::ProgramFuture, donation::Donations,
    entry::EntryCode, remark, state::FunctionState,
};
use crate::{
    Error,
    backend::{self, Backend},
    lowering::CancellationToken,
    model::DeviceId,
    nn::Parameter,
    runtime::guards::Guards,
    tensor::lock,
};
use std::{marker::PhantomData, panic::Location, sync::Arc};

/// A function that is compiled on its calls; see [`compile`]. Thread-safe.
pub struct Compiled<F, A> {
    pub(super) function: F,
    pub(super) settings: Settings,
    /// `None`: run eagerly.
    pub(super) backend: Option<Arc<dyn Backend>>,
    /// The first invalid setting, reported by calls.
    pub(super) setting_error: Option<String>,
    pub(super) donations: Donations,
    pub(super) state: Arc<FunctionState>,
    pub(super) _arguments: PhantomData<fn(A)>,
}

/// Compiles a function, as `torch.compile` does. Arguments and results are tensors, numbers, and
/// tuples, lists, arrays and options of these; the function may also return a `Result`. Other
/// captured state is a constant of the graph. Only a [`Parameter`](crate::nn::Parameter), such as a
/// weight of an [`nn`](crate::nn) module, may change between calls.
///
/// ```
/// use kiln::Tensor;
/// let scaled = kiln::compile(|x: Tensor, y: Tensor| (&x * 2 + y).relu()).name("scaled");
/// let (x, y) = (Tensor::from_slice(&[3], &[1.0f32, -2.0, 3.0])?, Tensor::scalar(1.0f32)?);
/// assert_eq!(scaled.call((&x, &y))?.to_vec::<f32>()?, [3.0, 0.0, 7.0]);
/// # Ok::<(), kiln::Error>(())
/// ```
pub fn compile<F: Function<A>, A: Arguments>(function: F) -> Compiled<F, A> {
    let (settings, setting_error) = match Settings::new() {
        Ok(settings) => (settings, None),
        Err(e) => (Settings::plain(), Some(e.to_string())),
    };
    // The name was checked when it was set.
    let backend = backend::find(&settings.backend).unwrap_or_else(|_| Some(backend::kiln()));
    Compiled {
        function,
        settings,
        backend,
        setting_error,
        donations: Donations::default(),
        state: FunctionState::new(),
        _arguments: PhantomData,
    }
}

/// Settings. An invalid setting is the error of [`Compiled::check`], and of every call.
impl<F: Function<A>, A: Arguments> Compiled<F, A> {
    fn with(mut self, set: impl FnOnce(&mut Compiled<F, A>) -> Result<(), Error>) -> Self {
        if let Err(e) = set(&mut self) {
            self.setting_error.get_or_insert(e.to_string());
        }
        self
    }

    /// Sets a mode of [`list_mode_options`](super::list_mode_options).
    #[track_caller]
    pub fn mode(self, mode: &str) -> Self {
        let at = Location::caller();
        self.with(|c| {
            c.settings.set_mode(mode)?.into_iter().for_each(|r| c.remark(Topic::Options, at, r));
            Ok(())
        })
    }

    /// Dynamic shapes. `None` (the default) makes sizes symbolic once they change between calls,
    /// `true` makes all symbolic from the first call, `false` always specialises.
    pub fn dynamic(mut self, dynamic: impl Into<Option<bool>>) -> Self {
        self.settings.dynamic = dynamic.into();
        self
    }

    /// Whether a graph break is an error.
    pub fn fullgraph(mut self, fullgraph: bool) -> Self {
        self.settings.fullgraph = fullgraph;
        self
    }

    /// Sets a backend of [`list_backends`](crate::list_backends).
    pub fn backend(self, name: &str) -> Self {
        self.with(|c| {
            c.backend = backend::find(name)?;
            c.settings.backend = name.into();
            Ok(())
        })
    }

    /// The device that programs run on: `cpu`, `cuda`, `cuda:<number>`.
    pub fn device(self, device: &str) -> Self {
        self.with(|c| {
            c.settings.options.device = DeviceId::parse(device).map_err(Error::Setting)?;
            Ok(())
        })
    }

    /// Sets options of [`list_options`](super::list_options) by name.
    #[track_caller]
    pub fn options<'a>(self, options: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let at = Location::caller();
        self.with(|c| {
            for (name, value) in options {
                c.settings
                    .set(name, value)?
                    .into_iter()
                    .for_each(|r| c.remark(Topic::Options, at, r));
            }
            c.backend = backend::find(&c.settings.backend)?;
            Ok(())
        })
    }

    /// Donates arguments, by their indices: results may be written to the memory of their tensors,
    /// as with JAX's `donate_argnums`. That holds without it for arguments that nothing else held in
    /// the call that compiled the program.
    ///
    /// A call takes the memory of tensors that it is given by value and that nothing else holds;
    /// their handles are moved, so no one can read them afterwards. A result whose argument is
    /// shared gets memory of its own.
    ///
    /// ```compile_fail,E0382
    /// use kiln::Tensor;
    /// let step = kiln::compile(|w: Tensor| w * 0.5).donate([0]);
    /// let w = Tensor::scalar(1.0f32)?;
    /// let new = step.call(w)?;
    /// w.item::<f32>()?; // moved: its memory is that of `new`
    /// # Ok::<(), kiln::Error>(())
    /// ```
    pub fn donate(mut self, arguments: impl IntoIterator<Item = usize>) -> Self {
        self.donations.arguments.extend(arguments);
        self
    }

    /// Donates the values of weights of which a call returns the new ones. They have no value from
    /// the call until [`nn::assign`](crate::nn::assign) gives them one; to read one before is an
    /// error. A weight whose value something else holds keeps it.
    ///
    /// ```
    /// use kiln::{Tensor, nn::{self, Linear, Module, Scope}};
    /// let net = Linear::without_bias(&Scope::root(), 2, 1);
    /// let weights = net.parameters();
    /// let decay = |rate: Tensor| nn::values(&weights).iter().map(|w| w * &rate).collect::<Vec<_>>();
    /// let decay = kiln::compile(decay).donate_weights(&weights);
    /// let new = decay.call(Tensor::scalar(0.5f32)?)?;
    /// nn::assign(&weights, &new)?;
    /// # Ok::<(), kiln::Error>(())
    /// ```
    pub fn donate_weights(mut self, weights: &[&Parameter]) -> Self {
        self.donations.weights.extend(weights.iter().map(|p| p.stored().clone()));
        self
    }

    /// Whether to disable compilation; the function then runs eagerly.
    pub fn disable(mut self, disable: bool) -> Self {
        self.settings.disable = disable;
        self
    }

    /// Whether to freeze weights into the program, for packing and constant folding. Changing a
    /// frozen weight causes a recompilation.
    pub fn freeze(mut self, freeze: bool) -> Self {
        self.settings.freeze = freeze;
        self
    }

    /// The function's name in remarks.
    pub fn name(mut self, name: &str) -> Self {
        self.settings.name = name.into();
        self
    }

    /// Err: the first invalid setting.
    pub fn check(&self) -> Result<(), Error> {
        self.setting_error.as_ref().map_or(Ok(()), |e| Err(Error::Setting(e.clone())))
    }

    /// The cancellation token of its compilations. After `stop().cancel()`, calls without a
    /// compiled program run op by op.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.settings.options.cancellation.clone()
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The guards of each program, in the order in which calls check them.
    pub fn guards(&self) -> Vec<Guards> {
        self.state.entries.all().iter().map(|e| e.guards.clone()).collect()
    }

    /// Its remarks, oldest first.
    pub fn remarks(&self) -> Vec<Remark> {
        lock(&self.state.remarks).clone()
    }

    /// The number of programs.
    pub fn programs(&self) -> usize {
        self.state.entries.all().len()
    }

    /// Waits for background compilations (option `asynchronous`). Err: the first compilation that
    /// failed.
    pub fn wait(&self) -> Result<(), Error> {
        let mut all: Vec<Arc<ProgramFuture>> = vec![];
        for entry in self.state.entries.all().iter() {
            if let EntryCode::Graph(graph) = &entry.code {
                all.extend(graph.program.clone());
            }
        }
        if let Some(segments) = lock(&self.state.segments).as_ref() {
            all.extend(lock(&segments.programs).iter().filter_map(|s| s.prepared.program.clone()));
        }
        let outcomes: Vec<_> = all.iter().map(|p| p.wait()).collect();
        outcomes.into_iter().find_map(Result::err).map_or(Ok(()), |e| Err(Error::Asynchronous(e)))
    }

    /// Discards its programs, and what it learned about dynamic sizes.
    pub fn reset(&self) {
        self.state.reset();
    }

    pub(super) fn remark(&self, topic: Topic, at: &Location<'_>, message: String) {
        self.remark_at(topic, remark::location(at), message);
    }

    pub(super) fn remark_at(&self, topic: Topic, location: String, message: String) {
        self.state.remark(Remark {
            topic,
            function: self.settings.name.clone(),
            message,
            location,
        });
    }
}
