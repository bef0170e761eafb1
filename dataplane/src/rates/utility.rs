//! U(x) = w V(x + shift) with V'(y) = y^-alpha, as `controller/core/rates/problem.py`.

/// The utility of one flow.
#[derive(Clone, Copy, Debug)]
pub struct Utility {
    pub weight: f64,
    pub alpha: f64,
    pub shift: f64,
}

impl Utility {
    /// The same utility of the rate in units of `unit`, up to a constant.
    pub fn scaled(self, unit: f64) -> Utility {
        Utility { weight: self.weight * unit.powf(1.0 - self.alpha), shift: self.shift / unit, ..self }
    }

    /// log U'(x).
    pub fn log_slope(&self, x: f64) -> f64 {
        if self.alpha == 0.0 {
            return self.weight.ln();
        }
        self.weight.ln() - self.alpha * (x + self.shift).ln()
    }

    /// U'(x).
    pub fn slope(&self, x: f64) -> f64 {
        if self.alpha == 1.0 {
            return self.weight / (x + self.shift);
        }
        self.log_slope(x).exp()
    }

    /// -U''(x) / U'(x).
    pub fn curvature(&self, x: f64) -> f64 {
        self.alpha / (x + self.shift)
    }

    /// Up to what share of a step of the rate from `x` by `change` the slope is about as linear in the logarithm as
    /// Newton's step takes it; more than 1 if the whole step is.
    pub fn trusted(&self, x: f64, change: f64) -> f64 {
        if self.alpha == 0.0 || change == 0.0 {
            return f64::INFINITY;
        }
        let limit = if change < 0.0 { 0.75 } else { 2.0 } / self.alpha.max(1.0).sqrt();
        limit * (x + self.shift) / change.abs()
    }
}
