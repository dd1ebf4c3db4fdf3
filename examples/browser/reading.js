// One reading of a picture: the network's belief and state after every pixel, computed as far as they are asked for.

export const STEPS = 784;

export function createReading(model, pixels) {
  const stream = model.create(), beliefs = [], states = [stream.state()[0].h];
  let milliseconds = 0;

  function upTo(step) {
    const start = performance.now();
    while (beliefs.length < step) {
      beliefs.push(softmax(stream.step([pixels[beliefs.length]]).outputs));
      states.push(stream.state()[0].h);
    }
    milliseconds += performance.now() - start;
  }

  return {
    pixels,
    upTo,
    /** Probabilities of the ten digits after `step` pixels. */
    belief(step) { upTo(step); return step ? beliefs[step - 1] : null; },
    /** 1,024 values: real parts, then imaginary parts. */
    state(step) { upTo(step); return states[step]; },
    milliseconds: () => milliseconds,
  };
}

export const best = (belief) => belief.indexOf(Math.max(...belief));

export function softmax(outputs) {
  const largest = Math.max(...outputs), powers = Array.from(outputs, (value) => Math.exp(value - largest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}
