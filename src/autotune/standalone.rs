//! One kernel as a standalone program, timed with different schedules.
use super::MeasureOptions;
use crate::{
    Error, Model, Options,
    dialects::{ir::*, ops::Launch, rules::Level, value::Tensor},
    lowering::{
        RunOptions, Target,
        analysis::kernels_of,
        driver::{compile::CompileError, schedules},
        pipeline_text_for, run_pipeline,
    },
    model::{Executable, OwnedTensor},
};
use std::path::Path;

/// Measuring time per schedule, in seconds.
const SECONDS: f64 = 0.02;
/// Calls per round on a GPU for long and for short kernels; more calls amortise timer overhead.
const CALLS: (usize, usize) = (5, 20);
/// Calls shorter than this are short, in seconds.
const SHORT_CALL: f64 = 5e-5;

/// A kernel of a module at `linalg`.
#[derive(Clone, Copy)]
pub struct StandaloneKernel {
    /// One of its launches, with static sizes.
    pub launch: Op,
    /// The kernel's module.
    pub kernel: Op,
}

/// The kernel compiled with one schedule, after a warm-up call.
pub struct Timed {
    exe: Executable,
    inputs: Vec<OwnedTensor>,
    outputs: Vec<OwnedTensor>,
    /// Median call time, in microseconds.
    pub time: f64,
    /// Its results.
    pub results: Vec<Tensor>,
}

impl StandaloneKernel {
    /// The standalone module, at `linalg`.
    fn module(&self, schedule: Option<Attr>, function: &str) -> Result<Module> {
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
                    given.push((*out, tensor::empty(b, &[], out.ty())?));
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
    /// The kernel's name.
    pub fn name(&self) -> String {
        self.kernel.symbol().unwrap_or_default()
    }
    /// Compiles it with a schedule and times it.
    pub fn time(
        &self,
        schedule: Attr,
        options: &Options,
        settings: &MeasureOptions<'_>,
    ) -> Result<Timed, Error> {
        let module = self.module(Some(schedule), &options.function)?;
        let exe = Model::from_module(&module, Path::new("")).compile(options)?;
        let inputs = (settings.inputs)(exe.program())?;
        let mut outputs = exe.memory(&inputs)?;
        exe.call_data(&inputs, &mut outputs)?;
        let results = outputs.iter().map(OwnedTensor::tensor).collect::<Result<_, _>>()?;
        let mut timed = Timed { exe, inputs, outputs, time: 0.0, results };
        timed.time = timed.remeasure()?;
        Ok(timed)
    }
    /// The schedule chosen by the target's cost model.
    pub fn default(&self, options: &Options, target: &Target) -> Result<Attr, Error> {
        let module = self.module(None, &options.function)?;
        let text = pipeline_text_for(Level::Linalg, Level::Scheduled, target)?;
        run_pipeline(&module, &text, &RunOptions::default(), &|_, _, _| ())
            .map_err(CompileError::Pass)?;
        // The context owns attributes, so they outlive the module.
        let found = kernels_of(module.op()).first().and_then(|f| f.attr("kiln.schedule"));
        Ok(found.ok_or_else(|| CompileError::Module("has a kernel without a schedule".into()))?)
    }
}

impl Timed {
    /// Whether a vendor library computes it.
    pub fn uses_library(&self) -> bool {
        self.exe.cuda().is_some_and(|l| l.library_calls() > 0)
    }
    /// Remarks about library calls.
    pub fn remarks(&self) -> String {
        self.exe.cuda().map_or(String::new(), |l| l.remarks().join("; "))
    }
    /// Measures it again: the median call time, in microseconds.
    pub fn remeasure(&mut self) -> Result<f64, Error> {
        let mut times = self.exe.measure(&self.inputs, &mut self.outputs, 1, 1)?;
        let fastest = times.iter().min().map_or(0.0, |t| t.as_secs_f64()).max(1e-6);
        let calls = match self.exe.device_info() {
            None => 1,
            Some(_) if fastest < SHORT_CALL => CALLS.1,
            Some(_) => CALLS.0,
        };
        // Warm-up: the first call is slow, for short host kernels by a large factor.
        let rounds = ((SECONDS / fastest / calls as f64) as usize).clamp(3, 1000);
        times = self.exe.measure(&self.inputs, &mut self.outputs, rounds, calls)?;
        times.sort_unstable();
        Ok(times[times.len() / 2].as_secs_f64() * 1e6)
    }
}
