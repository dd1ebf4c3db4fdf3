// A small organ: each note is a few harmonics that swell, fade slowly and ring in a room made of noise.

const HARMONICS = [0, 1, 0.42, 0.2, 0.11, 0.05, 0.04, 0.02];

export function createSound() {
  let context = null, wave, output;
  const sounding = new Map();
  const sound = { on: true, play, release, silence };

  // A page may make sound only after a click or a key.
  function start() {
    if (context) return context.resume();
    context = new AudioContext();
    wave = context.createPeriodicWave(new Float32Array(HARMONICS.length), Float32Array.from(HARMONICS));
    const room = context.createConvolver(), wet = context.createGain(), limiter = context.createDynamicsCompressor();
    output = context.createGain();
    output.gain.value = 0.16;
    wet.gain.value = 0.5;
    room.buffer = noise(1.8);
    output.connect(limiter);
    output.connect(room).connect(wet).connect(limiter).connect(context.destination);
  }

  function noise(seconds) {
    const buffer = context.createBuffer(2, seconds * context.sampleRate, context.sampleRate);
    for (const channel of [0, 1]) {
      const data = buffer.getChannelData(channel);
      for (let i = 0; i < data.length; i++) data[i] = (2 * Math.random() - 1) * (1 - i / data.length) ** 3;
    }
    return buffer;
  }

  function play(midi) {
    if (!sound.on || sounding.has(midi)) return;
    start();
    const now = context.currentTime, tone = context.createOscillator(), gain = context.createGain();
    tone.setPeriodicWave(wave);
    tone.frequency.value = 440 * 2 ** ((midi - 69) / 12);
    gain.gain.setValueAtTime(0, now);
    gain.gain.linearRampToValueAtTime(1, now + 0.025);
    gain.gain.setTargetAtTime(0.55, now + 0.03, 0.6);
    tone.connect(gain).connect(output);
    tone.start();
    sounding.set(midi, { tone, gain });
  }

  function release(midi) {
    const note = sounding.get(midi);
    if (!note) return;
    sounding.delete(midi);
    note.gain.gain.setTargetAtTime(0, context.currentTime, 0.09);
    note.tone.stop(context.currentTime + 0.8);
  }

  function silence() {
    for (const midi of [...sounding.keys()]) release(midi);
  }

  return sound;
}
