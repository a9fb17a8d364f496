// A player: a button, the waveform to jump in, the time. It also grows while its speech is being generated.
import {clock, colour, iconButton, make, saveFile} from './dom.js';
import {engine, wavFile} from './sound.js';

const BAR = 3; // pixels from one bar of the waveform to the next
const GROWING = 6; // seconds that a waveform shows at least while it grows

const peaks = (samples, count, length) => {
  const found = new Float32Array(count);
  const step = length / count;
  for (let bar = 0; bar < count; bar += 1) {
    const end = Math.min(samples.length, Math.floor((bar + 1) * step));
    for (let at = Math.floor(bar * step); at < end; at += 1) found[bar] = Math.max(found[bar], Math.abs(samples[at]));
  }
  return found;
};

export class Voice {
  // `file` is the name of the download; without one there is none. `moved` is told each position, in samples.
  constructor(speech, {file = '', label = 'Speech', moved = () => {}} = {}) {
    Object.assign(this, {speech, moved, position: 0, playing: false, waiting: false});
    this.button = iconButton('play', `Play: ${label}`, () => this.toggle(), 'round');
    this.wave = make('canvas', {class: 'wave', tabindex: 0, role: 'slider', 'aria-label': `Position in: ${label}`,
      'aria-valuemin': 0});
    this.time = make('span', {class: 'time'});
    this.note = make('span', {class: 'waiting', role: 'status'});
    this.root = make('div', {class: 'voice', role: 'group', 'aria-label': label}, this.button, this.wave, this.time,
      file ? iconButton('save', 'Download as WAV', () => saveFile(file, wavFile({rate: speech.rate, samples: speech.from()}))) : null);
    this.label = label;
    this.wave.addEventListener('pointerdown', (event) => this.seek(event));
    this.wave.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.wave);
    this.draw();
  }

  get shown() { return this.speech.done ? this.speech.length : Math.max(this.speech.length, GROWING * this.speech.rate); }

  toggle() {
    if (this.playing) engine.stop();
    else this.play(this.speech.done && this.position >= this.speech.length ? 0 : this.position);
  }

  play(start = 0) {
    this.position = Math.max(0, Math.min(start, this.speech.length));
    this.playing = true;
    this.draw();
    engine.play(this.speech, this.position, ({position, waiting, over, stopped}) => {
      Object.assign(this, {position, waiting, playing: !over});
      if (over && !stopped) this.position = this.speech.length;
      this.moved(this.position, this.playing);
      this.draw();
    }).catch(() => {
      this.playing = false;
      this.note.textContent = 'This browser plays no sound here.';
      this.draw();
    });
  }

  seek(event) {
    const box = this.wave.getBoundingClientRect();
    this.jump(Math.round(((event.clientX - box.left) / box.width) * this.shown));
  }

  jump(position) {
    const to = Math.max(0, Math.min(position, this.speech.length));
    if (this.playing) this.play(to);
    else {
      this.position = to;
      this.moved(to, false);
      this.draw();
    }
  }

  key(event) {
    const step = this.speech.rate / 2;
    const to = {ArrowLeft: this.position - step, ArrowRight: this.position + step, Home: 0, End: this.speech.length}[event.key];
    if (to !== undefined) this.jump(to);
    else if (event.key === ' ' || event.key === 'Enter') this.toggle();
    else return;
    event.preventDefault();
  }

  draw() {
    const {speech, wave} = this;
    const name = this.playing ? 'pause' : 'play';
    if (this.button.dataset.shows !== name) {
      const fresh = iconButton(name, `${this.playing ? 'Pause' : 'Play'}: ${this.label}`, () => {}, 'round');
      this.button.replaceChildren(...fresh.childNodes);
      this.button.setAttribute('aria-label', fresh.getAttribute('aria-label'));
      this.button.title = fresh.title;
      this.button.dataset.shows = name;
    }
    this.root.classList.toggle('playing', this.playing);
    const length = speech.seconds;
    const told = (value) => (length < 60 ? value.toFixed(1) : clock(value));
    this.time.textContent = this.playing || this.position
      ? `${told(this.position / speech.rate)} / ${told(length)}${length < 60 ? ' s' : ''}` : `${told(length)}${length < 60 ? ' s' : ''}`;
    this.note.textContent = this.playing && this.waiting && !speech.done ? 'Buffering: the model generates speech more slowly than real time' : '';
    wave.setAttribute('aria-valuemax', length.toFixed(2));
    wave.setAttribute('aria-valuenow', (this.position / speech.rate).toFixed(2));
    wave.setAttribute('aria-valuetext', `${(this.position / speech.rate).toFixed(1)} of ${length.toFixed(1)} seconds`);
    const {clientWidth: width, clientHeight: height} = wave;
    if (!width) return;
    const scale = devicePixelRatio || 1;
    wave.width = width * scale;
    wave.height = height * scale;
    const pen = wave.getContext('2d');
    pen.scale(scale, scale);
    const count = Math.floor(width / BAR);
    const found = this.peaks(count);
    const [heard, rest, empty] = [colour(wave, '--accent'), colour(wave, '--wave'), colour(wave, '--line')];
    for (let bar = 0; bar < count; bar += 1) {
      const at = ((bar + 0.5) / count) * this.shown;
      pen.fillStyle = at >= speech.length ? empty : at < this.position ? heard : rest;
      const tall = Math.max(2, (found[bar] / 32768) ** 0.6 * height);
      pen.beginPath();
      pen.roundRect(bar * BAR, (height - tall) / 2, BAR - 1, tall, 1);
      pen.fill();
    }
  }

  peaks(count) {
    const key = `${count} ${this.speech.length} ${this.shown}`;
    if (this.found?.key !== key) this.found = {key, values: peaks(this.speech.from(), count, this.shown)};
    return this.found.values;
  }
}
