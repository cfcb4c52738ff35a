//! Initial values of weights.
use kiln_dialects::value::{DType, Data, Tensor, count};
use kiln_runtime::DataError;

/// Initialisation of a weight. Random values depend on the qualified name and the
/// [seed](super::Scope::with_seed), so they are the same in every run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// A constant fill.
    Constant(f64),
    /// Uniform in [-b, b).
    Uniform(f64),
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
}

/// An initialisation with a seed; seed 0 from an [`Init`] alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seeded {
    init: Init,
    seed: u64,
}

impl From<Init> for Seeded {
    fn from(init: Init) -> Seeded {
        Seeded { init, seed: 0 }
    }
}

/// Fan-in and fan-out of a weight [out, in, ...], times the elements of the window. Err: fewer than
/// two dimensions.
fn fans(shape: &[usize]) -> Result<[f64; 2], DataError> {
    let [outputs, inputs, window @ ..] = shape else {
        return Err(format!("the weight has shape {shape:?}: fans need two dimensions").into());
    };
    let window: f64 = window.iter().map(|n| *n as f64).product();
    Ok([*inputs as f64 * window, *outputs as f64 * window].map(|n| n.max(1.0)))
}

impl Init {
    /// Uniform with variance `2 gain^2 / (fan_in + fan_out)` (Glorot and Bengio, 2010), as
    /// `torch.nn.init.xavier_uniform_`. Err: fewer than two dimensions.
    pub fn xavier_uniform(shape: &[usize], gain: f64) -> Result<Init, DataError> {
        Ok(Init::Uniform(gain * (6.0 / fans(shape)?.iter().sum::<f64>()).sqrt()))
    }
    /// Normal with that variance, as `torch.nn.init.xavier_normal_`. Err: as there.
    pub fn xavier_normal(shape: &[usize], gain: f64) -> Result<Init, DataError> {
        Ok(Init::Normal(gain * (2.0 / fans(shape)?.iter().sum::<f64>()).sqrt()))
    }
    /// Uniform with variance `2 / (1 + slope^2) / fan_in` (He et al., 2015), for a leaky ReLU of
    /// that slope, as `torch.nn.init.kaiming_uniform_`. Err: fewer than two dimensions.
    pub fn kaiming_uniform(shape: &[usize], slope: f64) -> Result<Init, DataError> {
        Ok(Init::Uniform((6.0 / (1.0 + slope * slope) / fans(shape)?[0]).sqrt()))
    }
    /// Normal with that variance, as `torch.nn.init.kaiming_normal_`. Err: as there.
    pub fn kaiming_normal(shape: &[usize], slope: f64) -> Result<Init, DataError> {
        Ok(Init::Normal((2.0 / (1.0 + slope * slope) / fans(shape)?[0]).sqrt()))
    }
    /// With another seed.
    pub fn seeded(self, seed: u64) -> Seeded {
        Seeded { init: self, seed }
    }
}

impl Seeded {
    /// The values of a weight of this name. Err: too many elements.
    pub(super) fn value(
        self,
        name: &str,
        dtype: DType,
        shape: &[usize],
    ) -> Result<Tensor, DataError> {
        let n = count(shape).map_err(DataError::malformed)?;
        let mut random = Random::of(name, self.seed);
        let numbers: Vec<f64> = match self.init {
            Init::Constant(x) => vec![x; n],
            Init::Uniform(b) => (0..n).map(|_| (2.0 * random.unit() - 1.0) * b).collect(),
            Init::Normal(std) => (0..n).map(|_| random.normal() * std).collect(),
        };
        let data = if dtype.is_float() {
            Data::F(numbers.into_iter().map(|x| dtype.round(x)).collect())
        } else {
            Data::I(numbers.into_iter().map(|x| dtype.wrap(x as i64)).collect())
        };
        Tensor::new(dtype, shape.to_vec(), data).map_err(DataError::malformed)
    }
}

/// splitmix64: Steele et al., "Fast splittable pseudorandom number generators", 2014.
struct Random(u64);

impl Random {
    /// Seeded by a name (64-bit FNV hash) and a number.
    fn of(name: &str, seed: u64) -> Random {
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        // An odd multiple, so that seeds do not give shifted sequences.
        Random(hash ^ seed.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }
    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
    /// Standard normal: Box–Muller transform (1958).
    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}
