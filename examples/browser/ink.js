// Strokes to the 28 x 28 pixels that MNIST would have of them. The ink fits a box of 20 x 20 pixels, which is moved by
// whole pixels until the centre of mass is in the pixel (14, 14). A stroke is a list of points [x, y]; the pen is as wide
// as those of MNIST, whatever the size of the drawing.

const SIDE = 28;
const BOX = 20;
const CENTRE = 14.5;
const PEN = 2.5;
// Each pixel is the mean of FINE x FINE samples.
const FINE = 8;

/** Float32Array of 784 grey values, 0 to 1. */
export function toPixels(strokes) {
  const points = strokes.flat();
  if (!points.length) return new Float32Array(SIDE * SIDE);
  const [left, right] = extent(points.map(([x]) => x)), [top, bottom] = extent(points.map(([, y]) => y));
  // A dot stays a dot: it is not blown up to fill the box.
  const scale = (BOX - PEN) / Math.max(right - left, bottom - top, 0.15);
  const place = (x0, y0) => strokes.map((stroke) =>
    stroke.map(([x, y]) => [(x - left) * scale + x0 + PEN / 2, (y - top) * scale + y0 + PEN / 2]));
  const corner = (SIDE - BOX) / 2;
  const shift = centreOfMass(rasterise(place(corner, corner))).map((value) => Math.round(CENTRE - value));
  return rasterise(place(corner + shift[0], corner + shift[1]));
}

const extent = (values) => [Math.min(...values), Math.max(...values)];

function centreOfMass(pixels) {
  let mass = 0, x = 0, y = 0;
  pixels.forEach((value, at) => {
    mass += value;
    x += value * ((at % SIDE) + 0.5);
    y += value * (Math.floor(at / SIDE) + 0.5);
  });
  return [x / mass, y / mass];
}

function rasterise(strokes) {
  const canvas = new OffscreenCanvas(SIDE * FINE, SIDE * FINE);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.scale(FINE, FINE);
  drawStrokes(context, strokes, PEN);
  const { data } = context.getImageData(0, 0, SIDE * FINE, SIDE * FINE);
  const pixels = new Float32Array(SIDE * SIDE);
  for (let y = 0; y < SIDE * FINE; y++) {
    for (let x = 0; x < SIDE * FINE; x++) {
      pixels[Math.floor(y / FINE) * SIDE + Math.floor(x / FINE)] += data[4 * (y * SIDE * FINE + x) + 3];
    }
  }
  return pixels.map((sum) => sum / (255 * FINE * FINE));
}

/** Draw strokes as smooth lines with round ends, in the colour that the context has. */
export function drawStrokes(context, strokes, width) {
  context.lineWidth = width;
  context.lineCap = context.lineJoin = "round";
  for (const stroke of strokes) {
    const [[x, y]] = stroke;
    context.beginPath();
    context.moveTo(x, y);
    for (let i = 1; i < stroke.length - 1; i++) {
      const [a, b] = stroke[i], [c, d] = stroke[i + 1];
      context.quadraticCurveTo(a, b, (a + c) / 2, (b + d) / 2);
    }
    // A line of no length would not be drawn everywhere.
    context.lineTo(...(stroke.length > 1 ? stroke.at(-1) : [x + 1e-3, y]));
    context.stroke();
  }
}
