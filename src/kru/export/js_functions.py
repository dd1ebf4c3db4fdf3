"""Functions in JavaScript that a generated module is made of.

Sums are in double precision; states and outputs are rounded to float32.
"""

from kru.ops.scan.cells import LEAK, MODRELU_FLOOR

BASE = """
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
const sigmoid = (z) => 1 / (1 + Math.exp(-z));

// The product of a row of a matrix with x.
function dot({ values, columns }, row, x) {
  let sum = 0;
  for (let q = 0, at = row * columns; q < columns; q++) sum += values[at + q] * x[q];
  return sum;
}

// y[p, m] = sum_q W[p, q] x[m, q] for one factor after the other, each of which moves its index to the front.
function kronecker(factors, x, complex) {
  for (const w of factors) {
    const { rows, columns, values } = w;
    const y = (w.out ??= new Float32Array((x.length / columns) * rows));
    if (complex) complexFactor(values, rows, columns, x, y);
    else realFactor(values, rows, columns, x, y);
    x = y;
  }
  return x;
}

function realFactor(values, rows, columns, x, y) {
  const count = x.length / columns;
  for (let p = 0; p < rows; p++) {
    for (let m = 0, at = 0; m < count; m++, at += columns) {
      let sum = 0;
      for (let q = 0, row = p * columns; q < columns; q++) sum += values[row + q] * x[at + q];
      y[p * count + m] = sum;
    }
  }
}

// The imaginary rows of W follow the real ones; so do the imaginary parts of x and y.
function complexFactor(values, rows, columns, x, y) {
  const half = x.length / 2, count = half / columns, imaginary = rows * columns;
  for (let p = 0; p < rows; p++) {
    for (let m = 0, at = 0; m < count; m++, at += columns) {
      let re = 0, im = 0;
      for (let q = 0, row = p * columns; q < columns; q++, row++) {
        const a = values[row], b = values[imaginary + row], u = x[at + q], v = x[half + at + q];
        re += a * u - b * v;
        im += a * v + b * u;
      }
      y[p * count + m] = re;
      y[(rows + p) * count + m] = im;
    }
  }
}

// W h of a gate, a sum of Kronecker products.
function recurrent(layer, gate, h) {
  const [first, ...others] = layer.gates[gate].map((factors) => kronecker(factors, h, layer.complex));
  for (const y of others) for (let i = 0; i < y.length; i++) first[i] += y[i];
  return first;
}

// U x + bias of all gates; a symbol x is a column of U.
function inputPart(layer, x) {
  const { weight: w, bias, nonlinearity } = layer;
  const a = (layer.a ??= new Float32Array(w.rows));
  for (let i = 0; i < w.rows; i++) {
    const part = typeof x === "number" ? w.values[i * w.columns + x] : dot(w, i, x);
    a[i] = part + (bias && nonlinearity !== "modrelu" ? bias[i] : 0);
  }
  return a;
}

const affine = (w, bias) => (x) => {
  const y = new Float32Array(w.rows);
  for (let i = 0; i < w.rows; i++) y[i] = dot(w, i, x) + (bias ? bias[i] : 0);
  return y;
};
"""

SCALED_ROWS = (
    "const scaledRows = (values, columns, scale) =>\n"
    "  Float32Array.from(values, (value, at) => value * scale[Math.floor(at / columns)]);"
)

CELLS = {
    "elman": f"""
function elman(layer, {{ h }}, x) {{
  const a = inputPart(layer, x), w = recurrent(layer, 0, h), {{ units, complex, nonlinearity, leak }} = layer;
  const keep = (i, value) => (h[i] = leak ? h[i] + leak[i] * (value - h[i]) : value);
  for (let i = 0; i < (complex && nonlinearity === "modrelu" ? units : layer.size); i++) {{
    const z = Math.fround(a[i] + w[i]);
    if (nonlinearity === "modrelu") {{
      const im = complex ? Math.fround(a[units + i] + w[units + i]) : 0;
      const size = complex ? Math.sqrt(z * z + im * im) : Math.abs(z);
      const scale = Math.max(size + layer.bias[i], 0) / Math.max(size, {MODRELU_FLOOR});
      keep(i, z * scale);
      if (complex) keep(units + i, im * scale);
    }} else if (nonlinearity === "tanh") keep(i, Math.tanh(z));
    else if (nonlinearity === "relu") keep(i, Math.max(z, 0));
    else if (nonlinearity === "leaky_relu") keep(i, z > 0 ? z : {LEAK} * z);
    else keep(i, z);
  }}
}}
""",
    "lstm": """
function lstm(layer, { h, c }, x) {
  const a = inputPart(layer, x), n = layer.units;
  const [wi, wf, wg, wo] = [0, 1, 2, 3].map((gate) => recurrent(layer, gate, h));
  for (let j = 0; j < n; j++) {
    const i = sigmoid(a[j] + wi[j]), f = sigmoid(a[n + j] + wf[j]), o = sigmoid(a[3 * n + j] + wo[j]);
    c[j] = f * c[j] + i * Math.tanh(a[2 * n + j] + wg[j]);
    h[j] = o * Math.tanh(c[j]);
  }
}
""",
    "gru": """
function gru(layer, { h }, x) {
  const a = inputPart(layer, x), n = layer.units, d = layer.recurrentBias;
  const [wr, wz, wn] = [0, 1, 2].map((gate) => recurrent(layer, gate, h));
  for (let j = 0; j < n; j++) {
    const r = sigmoid(a[j] + wr[j]), z = sigmoid(a[n + j] + wz[j]);
    const candidate = Math.tanh(a[2 * n + j] + r * (wn[j] + (d ? d[j] : 0)));
    h[j] = (1 - z) * candidate + z * h[j];
  }
}
""",
}

HEAD = {
    "relu": "const relu = (y) => y.map((z) => Math.max(z, 0));",
    "tanh": "const tanh = (y) => y.map(Math.tanh);",
    # The name is taken by the function of one number; the head calls it by its vector form.
    "sigmoid": "const sigmoids = (y) => y.map(sigmoid);",
    "gelu": """
// z times the normal distribution up to z; the series of the error function has positive terms only.
const gelu = (y) => y.map((z) => {
  const x = Math.min(Math.abs(z) * Math.SQRT1_2, 6);
  let term = x, sum = x;
  for (let n = 1; term > 1e-17 * sum; n++) sum += term *= (2 * x * x) / (2 * n + 1);
  const erf = (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
  return 0.5 * z * (1 + Math.sign(z) * erf);
});
""",
    "softmax": """
const softmax = (y) => {
  const largest = Math.max(...y), powers = Array.from(y, (z) => Math.exp(z - largest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return Float32Array.from(powers, (power) => power / sum);
};
""",
    "log_softmax": """
const log_softmax = (y) => {
  const largest = Math.max(...y);
  const sum = Math.log(y.reduce((total, z) => total + Math.exp(z - largest), 0)) + largest;
  return y.map((z) => z - sum);
};
""",
}

STREAM = """
/** A stream with a state of its own. */
export function create() {
  let states, mean, squares, count, before, heard, result;

  /** Start a sequence. */
  function reset() {
    states = model.layers.map(({ size, initial }) => ({
      h: initial ? initial.slice() : new Float32Array(size),
      c: new Float32Array(size),
    }));
    mean = squares = null;
    count = 0;
    before = null;
    heard = [];
    result = null;
  }

  /**
   * One time step: an array of values, or a symbol. A single value needs no array. For a model that reads features of
   * sounds it is one sample of each channel; there is a result from the first full window on, else null.
   */
  function step(x) {
    const values = read(x);
    if (!model.sound) return advance(values);
    heard.push(values);
    if (heard.length < model.sound.window) return result;
    const spectra = Array.from(values, (_, channel) => features(heard.map((sample) => sample[channel])));
    heard.splice(0, model.sound.hop);
    return (result = advance(Float32Array.from(spectra.flat())));
  }

  function advance(values) {
    let x = model.scaling ? scaled(values, before ?? values) : values;
    before = values;
    const first = x;
    model.layers.forEach((layer, index) => {
      layer.cell(layer, states[index], x);
      x = states[index].h;
    });
    if (model.allLayers || model.readsInput) {
      const parts = model.allLayers ? states.map(({ h }) => h) : [x];
      x = [...parts, ...(model.readsInput ? [first] : [])].flatMap((part) => Array.from(part));
    }
    if (model.pooling === "mean" || model.pooling === "moments") {
      mean ??= new Float64Array(x.length);
      squares ??= new Float64Array(x.length);
      count += 1;
      x.forEach((value, i) => {
        const change = value - mean[i];
        mean[i] += change / count;
        squares[i] += change * (value - mean[i]);
      });
      x = model.pooling === "mean" ? mean : [...mean, ...squares.map((square) => Math.sqrt(square / count))];
    }
    const outputs = model.head.reduce((y, part) => part(y), Float32Array.from(x));
    if (!model.labels) return { outputs };
    const best = outputs.length > 1 ? outputs.indexOf(Math.max(...outputs)) : Number(outputs[0] > model.threshold);
    return { outputs, label: model.labels[best], ...(model.probabilities && { probabilities: outputs }) };
  }

  /** A whole sequence: the result of each step, or the last one if the model has one for a sequence. */
  function run(sequence) {
    reset();
    const results = Array.from(sequence, step);
    return model.pooling === "all" ? results : results.at(-1);
  }

  /** The state of each layer, `{ h, c }` as Float32Array; complex layers have real parts first. A copy. */
  const state = () => states.map(({ h, c }) => ({ h: h.slice(), c: c.slice() }));

  reset();
  return { reset, step, run, state };
}

function read(x) {
  const { inputs, symbols, embedding: w } = model;
  if (symbols) {
    if (!Number.isInteger(x) || x < 0 || x >= inputs) throw new RangeError(`x: expected 0 to ${inputs - 1}, got ${x}`);
    if (!w) return x;
    return w.values.subarray(x * w.columns, (x + 1) * w.columns);
  }
  if (typeof x === "number" && inputs === 1) return Float32Array.of(x);
  if (x?.length !== inputs) throw new RangeError(`x: expected ${inputs} values, got ${x?.length}`);
  return Float32Array.from(x);
}

// What the first layer reads of the values x: scaled, their changes, and which of them are missing.
function scaled(x, before) {
  const { mean, scale, change, mask } = model.scaling;
  const parts = [Array.from(x, (value, i) => (value - mean[i]) / scale[i])];
  if (change) parts.push(Array.from(x, (value, i) => (value - before[i]) / change[i]));
  if (!mask) return Float32Array.from(parts.flat());
  const zeroed = parts.flat().map((value) => (Number.isNaN(value) ? 0 : value));
  return Float32Array.from([...zeroed, ...Array.from(x, (value) => Number(Number.isNaN(value)))]);
}

export const { reset, step, run, state } = create();
"""
