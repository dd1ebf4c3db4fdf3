// Loads the two exported modules, which stand in the page as text, and starts both sections.

import { createDigit } from "./digit.js";
import { toPixels } from "./ink.js";
import { createMusic } from "./music.js";

// Modules from an address of their own would need a server; this works from a file too.
const load = (id) =>
  import(`data:text/javascript;charset=utf-8,${encodeURIComponent(document.getElementById(id).textContent.trim())}`);

const [digits, music] = await Promise.all([load("digits-model"), load("music-model")]);
globalThis.kru = { digits, music, toPixels, digit: createDigit(digits), chorale: createMusic(music) };
