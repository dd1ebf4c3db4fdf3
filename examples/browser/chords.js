// Which keys sound next. The network gives the odds of each key on its own; a chorale has four voices, so four keys are
// drawn together: a set S of four keys with the probability prod_{k in S} odds_k, divided by the sum over all such sets.

export const KEYS = 88;
/** MIDI numbers of the keys shown, C2 to C6: those of the chorales. */
export const LOWEST = 36, HIGHEST = 84;
const FIRST_MIDI = 21;
const VOICES = 4;

/** What the network reads: 88 values, 1 for each key that sounds. */
export function frame(notes) {
  const keys = new Float32Array(KEYS);
  for (const midi of notes) keys[midi - FIRST_MIDI] = 1;
  return keys;
}

/** The probability of each MIDI number, as a function. */
export const probabilities = (outputs) => (midi) => 1 / (1 + Math.exp(-outputs[midi - FIRST_MIDI]));

/** Four MIDI numbers; `surprise` divides the logits, `random` gives numbers from 0 to 1. */
export function drawChord(outputs, surprise, random = Math.random) {
  const notes = Array.from({ length: HIGHEST - LOWEST + 1 }, (_, i) => LOWEST + i);
  const logits = notes.map((midi) => outputs[midi - FIRST_MIDI] / surprise), largest = Math.max(...logits);
  const odds = logits.map((logit) => Math.exp(Math.max(logit - largest, -60)));
  // ways[i][k]: the sum, over all sets of k notes out of i and those above, of the product of their odds.
  const ways = [...notes, null].map(() => new Float64Array(VOICES + 1));
  ways[notes.length][0] = 1;
  for (let i = notes.length - 1; i >= 0; i--) {
    for (let k = 0; k <= VOICES; k++) ways[i][k] = ways[i + 1][k] + (k ? odds[i] * ways[i + 1][k - 1] : 0);
  }
  let left = VOICES;
  return notes.filter((_, i) => {
    const taken = left > 0 && random() * ways[i][left] < odds[i] * ways[i + 1][left - 1];
    if (taken) left -= 1;
    return taken;
  });
}
