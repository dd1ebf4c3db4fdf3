// The drawing area: strokes by mouse, finger, pen or keyboard, in a square of side 1.

import { drawStrokes } from "./ink.js";
import { colour, surface } from "./canvas.js";

const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const STEP = 0.04;

/** onChange is called while drawing, onDone when a stroke has ended or Enter was pressed. */
export function createPad(canvas, { onChange, onDone }) {
  let strokes = [], pointer = null, cursor = [0.5, 0.3], lowered = false;
  const redraw = surface(canvas, (context, width) => {
    context.save();
    context.scale(width, width);
    context.strokeStyle = colour("ink");
    drawStrokes(context, strokes, 0.075);
    context.restore();
    if (!strokes.length) hint(context, width);
    if (document.activeElement === canvas && pointer === null) drawCursor(context, width);
  });

  function hint(context, width) {
    context.fillStyle = colour("soft");
    context.font = `${Math.max(14, width / 20)}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.fillText("draw here", width / 2, width / 2);
  }

  function drawCursor(context, width) {
    context.strokeStyle = context.fillStyle = colour("accent");
    context.lineWidth = 2;
    context.beginPath();
    context.arc(cursor[0] * width, cursor[1] * width, 7, 0, 2 * Math.PI);
    if (lowered) context.fill();
    context.stroke();
  }

  const at = (event) => {
    const { left, top, width } = canvas.getBoundingClientRect();
    return [(event.clientX - left) / width, (event.clientY - top) / width];
  };
  const changed = () => { redraw(); onChange(); };

  canvas.addEventListener("pointerdown", (event) => {
    if (pointer !== null || event.button !== 0) return;
    pointer = event.pointerId;
    canvas.setPointerCapture(pointer);
    strokes.push([at(event)]);
    lowered = false;
    changed();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.pointerId !== pointer) return;
    const parts = event.getCoalescedEvents?.();
    for (const part of parts?.length ? parts : [event]) strokes.at(-1).push(at(part));
    changed();
  });
  for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, (event) => {
    if (event.pointerId !== pointer) return;
    pointer = null;
    redraw();
    onDone();
  });

  canvas.addEventListener("keydown", (event) => {
    const move = MOVES[event.key];
    if (move) {
      cursor = cursor.map((value, i) => Math.min(0.95, Math.max(0.05, value + STEP * move[i])));
      if (lowered) strokes.at(-1).push([...cursor]);
      lowered ? changed() : redraw();
    } else if (event.key === " ") {
      lowered = !lowered;
      if (lowered) strokes.push([[...cursor]]);
      lowered ? changed() : redraw();
    } else if (event.key === "Enter") {
      lowered = false;
      redraw();
      onDone();
    } else if (event.key === "Delete" || event.key === "Backspace") clear();
    else return;
    event.preventDefault();
  });
  canvas.addEventListener("focus", redraw);
  canvas.addEventListener("blur", redraw);

  function clear() {
    strokes = [];
    lowered = false;
    changed();
  }

  return { clear, strokes: () => strokes, set(others) { strokes = others; lowered = false; redraw(); } };
}
