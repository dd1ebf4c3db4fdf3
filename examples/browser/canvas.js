// Canvases that are as sharp as the screen and have the colours of the page.

export const still = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");

/** The value of a CSS variable. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Call draw(context, width, height), in CSS pixels, now and whenever size or colours change; returns "draw again". */
export function surface(canvas, draw) {
  const context = canvas.getContext("2d");
  let width = 0, height = 0;
  const again = () => {
    if (!width || !height) return;
    context.clearRect(0, 0, width, height);
    draw(context, width, height);
  };
  new ResizeObserver(() => {
    ({ width, height } = canvas.getBoundingClientRect());
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    context.scale(ratio, ratio);
    again();
  }).observe(canvas);
  dark.addEventListener("change", again);
  return again;
}
