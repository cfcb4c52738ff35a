//! A kernel as a program of its own, to be timed with one schedule or another.
use super::How;
use crate::{
    Error, Model, Options,
    dialects::{ir::*, ops::Launch, rules::Level, value::Tensor},
    lowering::{
        RunOptions, Target,
        analysis::kernels_of,
        driver::{compile::CompileError, schedules},
        pipeline_text_for, run_pipeline,
    },
    model::{Data, Executable},
};
use std::path::Path;

/// Seconds that one schedule is timed for.
const SECONDS: f64 = 0.02;
/// Calls of a round on a GPU, of which there are more the shorter they are: what the clock itself
/// takes is then little.
const CALLS: (usize, usize) = (5, 20);
/// Seconds of a short call.
const SHORT: f64 = 5e-5;

/// A kernel of a module at `linalg`.
#[derive(Clone, Copy)]
pub struct Alone {
    /// A launch of it, all of whose sizes are known.
    pub launch: Op,
    /// Its module.
    pub kernel: Op,
}

/// It compiled with one schedule, and called once.
pub struct Timed {
    exe: Executable,
    inputs: Vec<Data>,
    outputs: Vec<Data>,
    /// Microseconds of a call: the median.
    pub time: f64,
    /// What it computed.
    pub results: Vec<Tensor>,
}

impl Alone {
    /// The program's module, at `linalg`.
    fn module(&self, schedule: Option<Attr>, function: &str) -> Result<Module, String> {
        let c = self.launch.ctx();
        let own = Module::new(self.launch.loc());
        own.op().set_attr("kiln.level", Attr::string(c, Level::Linalg.name()));
        let launch = Launch::of(self.launch).ok_or("is malformed")?;
        let types = |all: &[Value]| all.iter().map(|v| v.ty()).collect::<Vec<_>>();
        let b = Builder::at_end(c, own.body(), self.launch.loc());
        b.function(
            function,
            &types(&launch.inputs),
            &types(&self.launch.results()),
            &mut |b, args| {
                let mut given: Vec<(Value, Value)> =
                    launch.inputs.iter().copied().zip(args).collect();
                for out in &launch.outs {
                    given.push((
                        *out,
                        b.generic("tensor.empty", &[], &[out.ty()], &[], &mut [])?.result(0),
                    ));
                }
                let copy = b.clone_op(self.launch, &|v| {
                    given.iter().find(|(old, _)| *old == v).map_or(v, |(_, new)| *new)
                })?;
                b.ret(&copy.results()).map(drop)
            },
        )?;
        b.clone_op(self.kernel, &|v| v)?;
        if let Some(schedule) = schedule {
            kernels_of(own.op()).iter().for_each(|f| schedules::set(*f, schedule));
        }
        Ok(own)
    }
    /// What it is called.
    pub fn name(&self) -> String {
        self.kernel.symbol().unwrap_or_default()
    }
    /// It with a schedule, timed.
    pub fn time(&self, schedule: Attr, options: &Options, how: &How<'_>) -> Result<Timed, Error> {
        let module =
            self.module(Some(schedule), &options.function).map_err(CompileError::Module)?;
        let exe = Model::of_module(&module, Path::new("")).compile(options)?;
        let inputs = (how.inputs)(exe.program())?;
        let mut outputs = exe.memory(&inputs)?;
        exe.call_data(&inputs, &mut outputs)?;
        let results =
            outputs.iter().map(Data::tensor).collect::<Result<_, _>>().map_err(Error::Target)?;
        let mut timed = Timed { exe, inputs, outputs, time: 0.0, results };
        timed.time = timed.again()?;
        Ok(timed)
    }
    /// The schedule that the model of the machine chooses.
    pub fn default(&self, options: &Options, target: &Target) -> Result<Attr, Error> {
        let module = self.module(None, &options.function).map_err(CompileError::Module)?;
        let text = pipeline_text_for(Level::Linalg, Level::Scheduled, target)
            .map_err(CompileError::Module)?;
        run_pipeline(&module, &text, &RunOptions::default(), &|_, _, _| ())
            .map_err(CompileError::Pass)?;
        // A context keeps attributes, whatever becomes of the module.
        let found = kernels_of(module.op()).first().and_then(|f| f.attr("kiln.schedule"));
        Ok(found.ok_or_else(|| CompileError::Module("has a kernel without a schedule".into()))?)
    }
}

impl Timed {
    /// Whether a library computes it.
    pub fn by_library(&self) -> bool {
        self.exe.cuda().is_some_and(|l| l.library_calls() > 0)
    }
    /// What there is to say of its libraries.
    pub fn remarks(&self) -> String {
        self.exe.cuda().map_or(String::new(), |l| l.remarks().join("; "))
    }
    /// Times it anew: microseconds of a call, the median.
    pub fn again(&mut self) -> Result<f64, Error> {
        let mut times = self.exe.measure(&self.inputs, &mut self.outputs, 1, 1)?;
        let once = times.iter().min().map_or(0.0, |t| t.as_secs_f64()).max(1e-6);
        let calls = match self.exe.card() {
            None => 1,
            Some(_) if once < SHORT => CALLS.1,
            Some(_) => CALLS.0,
        };
        // The first call is a slow one, of a short kernel on the host many times.
        let rounds = ((SECONDS / once / calls as f64) as usize).clamp(3, 1000);
        times = self.exe.measure(&self.inputs, &mut self.outputs, rounds, calls)?;
        times.sort_unstable();
        Ok(times[times.len() / 2].as_secs_f64() * 1e6)
    }
}
