// The piano on the screen: buttons, one of which is in the order of the tab key; arrows move, letters play two octaves.

import { HIGHEST, LOWEST } from "./chords.js";

const NAMES = ["C", "C sharp", "D", "E flat", "E", "F", "F sharp", "G", "A flat", "A", "B flat", "B"];
const BLACK = new Set([1, 3, 6, 8, 10]);
const LETTERS = ["KeyZ KeyS KeyX KeyD KeyC KeyV KeyG KeyB KeyH KeyN KeyJ KeyM", "KeyQ Digit2 KeyW Digit3 KeyE KeyR Digit5 KeyT Digit6 KeyY Digit7 KeyU KeyI Digit9 KeyO Digit0 KeyP"]
  .flatMap((row, octave) => row.split(" ").map((code, i) => [code, 48 + 12 * octave + i]));
const BY_LETTER = new Map(LETTERS);

export const noteName = (midi) => `${NAMES[midi % 12]} ${Math.floor(midi / 12) - 1}`;

/** Left edge and width of each key, as parts of the whole keyboard. */
export const PLACES = (() => {
  const places = new Map();
  let white = 0;
  for (let midi = LOWEST; midi <= HIGHEST; midi++) {
    const black = BLACK.has(midi % 12);
    places.set(midi, black ? { left: white - 0.3, width: 0.6, black } : { left: white, width: 1, black });
    if (!black) white += 1;
  }
  for (const place of places.values()) {
    place.left /= white;
    place.width /= white;
  }
  return places;
})();

/** press(midi) and release(midi) are called as keys go down and up, cancel(midi) if a touch turns into scrolling. */
export function createPiano(element, { press, release, cancel }) {
  const buttons = new Map(), pointers = new Map(), letters = new Map();
  let current = 60;

  for (const [midi, { left, width, black }] of PLACES) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = black ? "black" : "white";
    button.style.left = `${100 * left}%`;
    button.style.width = `${100 * width}%`;
    button.tabIndex = midi === current ? 0 : -1;
    button.dataset.midi = midi;
    button.setAttribute("aria-label", noteName(midi));
    if (midi % 12 === 0) button.textContent = `C${midi / 12 - 1}`;
    buttons.set(midi, button);
    element.append(button);
  }

  function focus(midi, preventScroll = false) {
    buttons.get(current).tabIndex = -1;
    current = Math.min(HIGHEST, Math.max(LOWEST, midi));
    buttons.get(current).tabIndex = 0;
    buttons.get(current).focus({ preventScroll });
  }

  element.addEventListener("pointerdown", (event) => {
    const midi = Number(event.target.dataset.midi);
    if (!midi || event.button !== 0) return;
    pointers.set(event.pointerId, midi);
    focus(midi, true);
    press(midi);
  });
  const lift = (event) => {
    if (!pointers.has(event.pointerId)) return;
    (event.type === "pointercancel" ? cancel : release)(pointers.get(event.pointerId));
    pointers.delete(event.pointerId);
  };
  addEventListener("pointerup", lift);
  addEventListener("pointercancel", lift);
  // What assistive technology sends is a click without a pointer.
  element.addEventListener("click", (event) => {
    if (event.detail !== 0 || !event.target.dataset.midi) return;
    press(Number(event.target.dataset.midi));
    release(Number(event.target.dataset.midi));
  });

  element.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: 12, ArrowDown: -12 }[event.key];
    if (move) focus(current + move);
    else if (event.key === "Home" || event.key === "End") focus(event.key === "Home" ? LOWEST : HIGHEST);
    else if (BY_LETTER.has(event.code)) {
      if (event.repeat || letters.has(event.code)) return;
      letters.set(event.code, BY_LETTER.get(event.code));
      press(BY_LETTER.get(event.code));
    } else return;
    event.preventDefault();
  });
  const lettersUp = (codes) => codes.forEach((code) => {
    const midi = letters.get(code);
    letters.delete(code);
    if (midi) release(midi);
  });
  addEventListener("keyup", (event) => lettersUp([event.code]));
  addEventListener("blur", () => lettersUp([...letters.keys()]));

  /** Mark the keys that sound: `owner` is "yours" or "its". */
  function mark(notes, owner) {
    for (const [midi, button] of buttons) {
      button.classList.toggle("yours", owner === "yours" && notes.includes(midi));
      button.classList.toggle("its", owner === "its" && notes.includes(midi));
    }
  }
  return { mark };
}
