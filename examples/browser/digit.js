// The first section: what is drawn, what is read of it, the state, and the belief over time.

import { colour, still, surface } from "./canvas.js";
import { exampleStrokes } from "./examples.js";
import { toPixels } from "./ink.js";
import { createPad } from "./pad.js";
import { best, createReading, STEPS } from "./reading.js";

const SECONDS = 3.5;
const LABELS = 24;

export function createDigit(model) {
  const find = (id) => document.getElementById(id);
  const slider = find("step");
  let reading = createReading(model, new Float32Array(STEPS)), step = 0, timer = 0, animation = 0, empty = true;

  const draw = [
    surface(find("pixels"), (context, width) => {
      const side = width / 28, ink = colour("ink");
      context.fillStyle = ink;
      for (let i = 0; i < STEPS; i++) {
        context.globalAlpha = reading.pixels[i] * (i < step ? 1 : 0.22);
        if (reading.pixels[i]) context.fillRect((i % 28) * side, Math.floor(i / 28) * side, side + 0.3, side + 0.3);
      }
      context.globalAlpha = 1;
      if (step === 0 || step === STEPS) return;
      context.fillStyle = colour("accent");
      context.fillRect(0, Math.floor(step / 28) * side, (step % 28) * side, 1.5);
      context.fillRect((step % 28) * side, Math.floor(step / 28) * side, side, side);
    }),
    surface(find("state"), (context, width) => {
      const middle = width / 2, radius = width * 0.44;
      context.strokeStyle = colour("line");
      context.lineWidth = 1;
      for (const part of [1, 0.5]) {
        context.beginPath();
        context.arc(middle, middle, radius * part, 0, 2 * Math.PI);
        context.stroke();
      }
      const trail = still.matches ? 0 : 10;
      for (let back = Math.min(trail, step); back >= 0; back -= 2) points(context, reading.state(step - back), middle, radius, back);
    }),
    surface(find("belief"), (context, width, height) => {
      const row = height / 10, span = width - LABELS, now = step ? reading.belief(step) : null;
      const leader = now && !empty ? best(now) : -1;
      context.font = "600 13px system-ui, sans-serif";
      context.textBaseline = "middle";
      for (let digit = 0; digit < 10; digit++) {
        const base = (digit + 1) * row - 1;
        context.fillStyle = colour("line");
        context.fillRect(LABELS, base, span, 1);
        context.fillStyle = colour(digit === leader ? "accent" : "soft");
        context.fillText(digit, 4, base - row / 2 + 2);
        if (!now || empty) continue;
        context.beginPath();
        context.moveTo(LABELS, base);
        for (let i = 1; i <= step; i++) context.lineTo(LABELS + (span * i) / STEPS, base - reading.belief(i)[digit] * (row - 3));
        context.lineTo(LABELS + (span * step) / STEPS, base);
        context.globalAlpha = digit === leader ? 1 : 0.55;
        context.fill();
        context.globalAlpha = 1;
      }
      context.fillStyle = colour("accent");
      if (step && step < STEPS) context.fillRect(LABELS + (span * step) / STEPS, 0, 1.5, height);
    }),
  ];

  function points(context, state, middle, radius, age) {
    const units = state.length / 2;
    context.fillStyle = colour(age ? "soft" : "accent");
    context.globalAlpha = age ? 0.28 - age / 45 : 0.85;
    const size = age ? 1.2 : Math.max(1.6, middle / 90);
    for (let i = 0; i < units; i++) {
      const re = state[i], im = state[units + i], length = Math.hypot(re, im);
      if (length < 1e-6) continue;
      // Logarithmic, so that quiet and loud units are both seen.
      const scale = (radius * Math.min(1, Math.log1p(length) / REACH)) / length;
      context.beginPath();
      context.arc(middle + re * scale, middle - im * scale, size, 0, 2 * Math.PI);
      context.fill();
    }
    context.globalAlpha = 1;
  }

  function show(next) {
    step = next;
    slider.value = step;
    const belief = step && !empty ? reading.belief(step) : null, digit = belief ? best(belief) : -1;
    find("answer").textContent = belief ? digit : "\u00a0";
    const percent = belief ? `${Math.round(100 * belief[digit])} %` : "";
    find("sure").textContent = percent;
    find("place").textContent = step && step < STEPS ? `row ${Math.floor((step - 1) / 28) + 1}, pixel ${step}` : "";
    find("took").textContent = belief && step === STEPS ? `784 steps in ${reading.milliseconds().toFixed(0)} ms` : "";
    slider.setAttribute("aria-valuetext", belief ? `pixel ${step} of ${STEPS}: ${digit}, ${percent}` : `pixel ${step} of ${STEPS}`);
    draw.forEach((again) => again());
  }

  function finish() {
    show(STEPS);
    const belief = reading.belief(STEPS);
    find("digit-status").textContent = `Read as ${best(belief)}, ${Math.round(100 * Math.max(...belief))} per cent sure.`;
  }

  function start(pixels) {
    stop();
    empty = !pixels.some((value) => value > 0);
    reading = createReading(model, pixels);
    find("digit-status").textContent = "";
    if (empty) return show(0);
    if (still.matches) return finish();
    let begun = null;
    const frame = (now) => {
      begun ??= now;
      const next = Math.min(STEPS, Math.round((STEPS * (now - begun)) / (1000 * SECONDS)));
      if (next >= STEPS) return finish();
      show(next);
      animation = requestAnimationFrame(frame);
    };
    animation = requestAnimationFrame(frame);
  }

  function stop() {
    cancelAnimationFrame(animation);
    clearTimeout(timer);
  }

  const press = (pressed) => find("examples").querySelectorAll("button").forEach((button, digit) =>
    button.setAttribute("aria-pressed", digit === pressed));
  const pad = createPad(find("pad"), {
    onChange() {
      stop();
      press(-1);
      const pixels = toPixels(pad.strokes());
      empty = !pad.strokes().length;
      reading = createReading(model, pixels);
      find("digit-status").textContent = "";
      show(0);
    },
    // A digit may have a second stroke: wait for it.
    onDone() { timer = setTimeout(() => start(toPixels(pad.strokes())), 600); },
  });

  function example(digit) {
    pad.set(exampleStrokes(digit));
    press(digit);
    start(toPixels(pad.strokes()));
  }

  for (let digit = 0; digit < 10; digit++) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = digit;
    button.setAttribute("aria-label", `example ${digit}`);
    button.addEventListener("click", () => example(digit));
    find("examples").append(button);
  }
  find("read").addEventListener("click", () => start(toPixels(pad.strokes())));
  find("clear").addEventListener("click", () => { pad.clear(); find("pad").focus(); });
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
  const scrub = (event) => {
    if (!event.buttons) return;
    const { left, width } = event.currentTarget.getBoundingClientRect();
    stop();
    show(Math.round(STEPS * Math.min(1, Math.max(0, (event.clientX - left - LABELS) / (width - LABELS)))));
  };
  for (const kind of ["pointerdown", "pointermove"]) find("belief").addEventListener(kind, scrub);
  example(3);
  return { pixels: () => reading.pixels, belief: () => reading.belief(STEPS) };
}

// A length of 10 is at the rim.
const REACH = Math.log1p(10);
