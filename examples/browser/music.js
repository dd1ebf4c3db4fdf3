// The second section: chords that are played in, and those with which the network goes on.

import { colour, surface } from "./canvas.js";
import { drawChord, frame, probabilities } from "./chords.js";
import { createPiano, noteName, PLACES } from "./piano.js";
import { createSound } from "./sound.js";

const ROW = 16;
const AT_ONCE = 32;
// C, F, G, C: so that there is something to go on from.
const OPENING = [[48, 55, 64, 72], [53, 57, 65, 72], [55, 59, 62, 74], [48, 55, 64, 72]];

export function createMusic(model) {
  const find = (id) => document.getElementById(id);
  const stream = model.create(), sound = createSound();
  const held = new Set();
  let steps = [], outputs, chord = new Set(), since = 0, player = 0, cursor = -1, ringing = [];

  const redraw = surface(find("roll"), (context, width, height) => {
    const last = cursor >= 0 ? cursor + 1 : steps.length, rows = Math.ceil(height / ROW);
    const bar = (midi, y, grow = 0) => {
      const { left, width: wide } = PLACES.get(midi);
      context.beginPath();
      context.roundRect(left * width + 1 - grow, y + 1, wide * width - 2 + 2 * grow, ROW - 2, 3);
      context.fill();
    };
    context.fillStyle = colour("line");
    for (const [midi, { left }] of PLACES) if (midi % 12 === 0) context.fillRect(left * width, 0, 1, height);
    const glow = (values, y, strength) => {
      context.fillStyle = colour("accent");
      for (const midi of PLACES.keys()) {
        const p = values(midi);
        if (p < 0.02) continue;
        context.globalAlpha = strength * p;
        bar(midi, y);
      }
      context.globalAlpha = 1;
    };
    // The row at the keys is what comes next; every row above is one step further back.
    if (cursor < 0) glow(probabilities(outputs), height - ROW, 0.75);
    for (let back = 1; back < rows && last - back >= 0; back++) {
      const { notes, owner, expected } = steps[last - back], y = height - ROW * (back + 1);
      glow(expected, y, 0.18);
      context.fillStyle = colour(owner === "its" ? "accent" : "ink");
      for (const midi of notes) bar(midi, y);
    }
  });

  const tell = (text) => { find("music-status").textContent = text; };
  const enable = () => { for (const id of ["replay", "undo", "wipe"]) find(id).disabled = !steps.length; };

  function rewind(kept) {
    stream.reset();
    steps = [];
    ({ outputs } = stream.step(frame([])));
    kept.forEach(({ notes, owner }) => append(notes, owner));
    enable();
    redraw();
  }

  function append(notes, owner) {
    steps.push({ notes, owner, expected: probabilities(outputs) });
    ({ outputs } = stream.step(frame(notes)));
  }

  const beat = () => 60000 / Number(find("tempo").value);

  function sounds(notes, owner) {
    ringing.filter((midi) => !notes.includes(midi)).forEach(sound.release);
    ringing = notes;
    notes.forEach(sound.play);
    piano.mark(notes, owner);
  }

  function stop() {
    if (!player) return;
    clearTimeout(player);
    player = 0;
    cursor = -1;
    sounds([], "its");
    find("go").textContent = "Let it go on";
    find("replay").textContent = "Play all";
    redraw();
  }

  /** Call next() once a beat; it returns what sounds, or null at the end. */
  function run(button, next) {
    let due = performance.now();
    const tick = () => {
      const step = next();
      if (!step) {
        const added = button === "go" ? "The network has added its chords." : "End.";
        stop();
        return tell(added);
      }
      sounds(step.notes, step.owner);
      enable();
      redraw();
      due = Math.max(due + beat(), performance.now());
      player = setTimeout(tick, due - performance.now());
    };
    find(button).textContent = "Stop";
    player = setTimeout(tick, 0);
  }

  function goOn() {
    if (player) return stop();
    let left = AT_ONCE;
    tell("The network plays.");
    run("go", () => {
      if (left-- <= 0) return null;
      append(drawChord(outputs, Number(find("surprise").value)), "its");
      return steps.at(-1);
    });
  }

  function replay() {
    if (player) return stop();
    cursor = -1;
    run("replay", () => (++cursor < steps.length ? steps[cursor] : null));
  }

  // A chord is what is pressed between the first key down and the last key up; held longer, it lasts longer.
  const hands = {
    press(midi) {
      stop();
      if (!held.size) {
        chord = new Set();
        since = performance.now();
      }
      held.add(midi);
      chord.add(midi);
      sound.play(midi);
      piano.mark([...held], "yours");
    },
    cancel(midi) {
      chord.delete(midi);
      hands.release(midi);
    },
    release(midi) {
      if (!held.delete(midi)) return;
      sound.release(midi);
      piano.mark([...held], "yours");
      if (held.size || !chord.size) return;
      const notes = [...chord].sort((a, b) => a - b);
      const times = Math.min(8, Math.max(1, Math.round((performance.now() - since) / beat())));
      for (let i = 0; i < times; i++) append(notes, "yours");
      tell(`${notes.map(noteName).join(", ")}, step ${steps.length}`);
      enable();
      redraw();
    },
  };
  const piano = createPiano(find("piano"), hands);

  find("go").addEventListener("click", goOn);
  find("replay").addEventListener("click", replay);
  find("undo").addEventListener("click", () => {
    stop();
    // All that the network added at once, or one chord of the player's.
    const owner = steps.at(-1)?.owner;
    let kept = steps.slice(0, -1);
    while (owner === "its" && kept.at(-1)?.owner === "its") kept = kept.slice(0, -1);
    rewind(kept);
  });
  find("wipe").addEventListener("click", () => { stop(); rewind([]); tell("Empty."); });
  find("sound").addEventListener("change", (event) => {
    sound.on = event.target.checked;
    if (!sound.on) sound.silence();
  });
  find("music").addEventListener("keydown", (event) => { if (event.key === "Escape") stop(); });

  rewind(OPENING.map((notes) => ({ notes, owner: "yours" })));
  const box = find("instrument");
  box.scrollLeft = (box.scrollWidth - box.clientWidth) / 2;
  return { steps: () => steps.map(({ notes, owner }) => ({ notes, owner })), outputs: () => outputs };
}
