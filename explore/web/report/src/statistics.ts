// The tail of the χ² distribution.

/** The probability that a χ² variable with these degrees of freedom is at least `value`; NaN for invalid arguments. */
export function upperTail(value: number, degrees: number): number {
  if (!(degrees > 0) || !(value >= 0)) return Number.NaN;
  const a = degrees / 2;
  const x = value / 2;
  if (x === 0) return 1;
  const scale = Math.exp(-x + a * Math.log(x) - logGamma(a));
  if (x < a + 1) {
    // The series of the lower incomplete gamma function.
    let term = 1 / a;
    let sum = term;
    for (let n = 1; n < 10_000 && Math.abs(term) > Math.abs(sum) * 1e-15; n += 1) {
      term *= x / (a + n);
      sum += term;
    }
    return Math.min(1, Math.max(0, 1 - sum * scale));
  }
  // The continued fraction of the upper one, by Lentz's method.
  let b = x + 1 - a;
  let c = 1e300;
  let d = 1 / b;
  let h = d;
  for (let n = 1; n < 10_000; n += 1) {
    const factor = -n * (n - a);
    b += 2;
    d = 1 / (factor * d + b || 1e-300);
    c = b + factor / c || 1e-300;
    h *= d * c;
    if (Math.abs(d * c - 1) < 1e-15) break;
  }
  return Math.min(1, h * scale);
}

/** The logarithm of the gamma function for positive arguments (Lanczos, g = 7). */
function logGamma(x: number): number {
  const coefficients = [
    676.5203681218851, -1259.1392167224028, 771.3234287776531, -176.6150291621406, 12.507343278686905,
    -0.13857109526572012, 9.984369578019572e-6, 1.5056327351493116e-7,
  ];
  if (x < 0.5) return Math.log(Math.PI / Math.sin(Math.PI * x)) - logGamma(1 - x);
  const z = x - 1;
  const t = z + 7.5;
  const sum = coefficients.reduce((total, value, index) => total + value / (z + index + 1), 0.9999999999998099);
  return 0.5 * Math.log(2 * Math.PI) + (z + 0.5) * Math.log(t) - t + Math.log(sum);
}
