// How a hand writes the ten digits, as SVG paths in a square of 100 x 100.

const PATHS = [
  "M55 16 C30 18 26 48 32 68 C38 88 62 88 69 66 C76 42 72 18 50 17",
  "M56 15 C54 38 50 62 46 85",
  "M30 32 C34 12 66 12 67 34 C67 54 40 66 30 82 C46 76 58 82 74 80",
  "M32 22 C46 12 68 18 62 36 C58 46 48 48 44 49 C58 48 72 56 66 72 C60 88 38 88 29 77",
  "M36 17 C33 32 30 42 28 52 C42 54 58 53 74 50|M64 24 C61 46 58 66 57 86",
  "M68 17 C56 18 48 18 40 18 C38 28 36 36 34 45 C48 38 70 44 67 64 C64 86 40 88 29 78",
  "M62 15 C44 28 32 50 33 68 C34 88 62 88 66 70 C68 54 46 50 35 66",
  "M28 24 C44 22 58 22 72 20 C62 42 52 62 46 86",
  "M64 24 C50 10 30 22 38 36 C46 48 66 54 65 70 C63 88 34 88 34 71 C35 54 62 46 66 28",
  "M66 32 C60 14 34 18 33 36 C33 54 60 52 66 33 C66 52 62 70 56 86",
];

/** The strokes of an example, in a square of side 1. */
export const exampleStrokes = (digit) => PATHS[digit].split("|").map((data) => {
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", data);
  const count = Math.ceil(path.getTotalLength() / 3);
  return Array.from({ length: count + 1 }, (_, i) => {
    const { x, y } = path.getPointAtLength((i / count) * path.getTotalLength());
    return [x / 100, y / 100];
  });
});
