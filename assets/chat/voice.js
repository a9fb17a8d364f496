// A player: a button, a waveform with the position, and the time. It grows while its speech is being generated.
import {clock, colour, iconButton, make, observeSize, saveFile} from './dom.js';
import {engine, wavFile} from './sound.js';

const BAR = 3; // pixels from one bar of the waveform to the next
const MIN_SECONDS = 6; // the least that a growing waveform shows

const findPeaks = (samples, count, length) => {
  const peaks = new Float32Array(count);
  const step = length / count;
  for (let bar = 0; bar < count; bar += 1) {
    const end = Math.min(samples.length, Math.floor((bar + 1) * step));
    for (let index = Math.floor(bar * step); index < end; index += 1) peaks[bar] = Math.max(peaks[bar], Math.abs(samples[index]));
  }
  return peaks;
};

export class Voice {
  // `file` is the name of the download; without one there is no download. `onMove` gets each position in
  // samples, and whether the player plays.
  constructor(speech, {file = '', label = 'Speech', onMove = () => {}} = {}) {
    Object.assign(this, {speech, onMove, position: 0, isPlaying: false, isWaiting: false});
    this.button = iconButton('play', `Play: ${label}`, () => this.toggle(), 'round');
    this.wave = make('canvas', {class: 'wave', tabindex: 0, role: 'slider', 'aria-label': `Position in: ${label}`,
      'aria-valuemin': 0});
    this.time = make('span', {class: 'time'});
    this.note = make('span', {class: 'waiting', role: 'status'});
    this.root = make('div', {class: 'voice', role: 'group', 'aria-label': label}, this.button, this.wave, this.time,
      file ? iconButton('save', 'Download as WAV', () => saveFile(file, wavFile({rate: speech.rate, samples: speech.samplesFrom()}))) : null);
    this.label = label;
    this.wave.addEventListener('pointerdown', (event) => this.seek(event));
    this.wave.addEventListener('keydown', (event) => this.handleKey(event));
    observeSize(this.wave, () => this.draw());
    this.draw();
  }

  get displayedLength() { return this.speech.isComplete ? this.speech.length : Math.max(this.speech.length, MIN_SECONDS * this.speech.rate); }

  toggle() {
    if (this.isPlaying) engine.stop();
    else this.play(this.speech.isComplete && this.position >= this.speech.length ? 0 : this.position);
  }

  play(start = 0) {
    this.position = Math.max(0, Math.min(start, this.speech.length));
    this.isPlaying = true;
    this.draw();
    engine.play(this.speech, this.position, ({position, isWaiting, isOver, isStopped}) => {
      Object.assign(this, {position, isWaiting, isPlaying: !isOver});
      if (isOver && !isStopped) this.position = this.speech.length;
      this.onMove(this.position, this.isPlaying);
      this.draw();
    }).catch(() => {
      this.isPlaying = false;
      this.note.textContent = 'This browser plays no sound here.';
      this.draw();
    });
  }

  seek(event) {
    const rect = this.wave.getBoundingClientRect();
    this.jump(Math.round(((event.clientX - rect.left) / rect.width) * this.displayedLength));
  }

  jump(position) {
    const target = Math.max(0, Math.min(position, this.speech.length));
    if (this.isPlaying) this.play(target);
    else {
      this.position = target;
      this.onMove(target, false);
      this.draw();
    }
  }

  handleKey(event) {
    const step = this.speech.rate / 2;
    const target = {ArrowLeft: this.position - step, ArrowRight: this.position + step, Home: 0, End: this.speech.length}[event.key];
    if (target !== undefined) this.jump(target);
    else if (event.key === ' ' || event.key === 'Enter') this.toggle();
    else return;
    event.preventDefault();
  }

  draw() {
    const {speech, wave} = this;
    const name = this.isPlaying ? 'pause' : 'play';
    if (this.button.dataset.shows !== name) {
      const button = iconButton(name, `${this.isPlaying ? 'Pause' : 'Play'}: ${this.label}`, () => {}, 'round');
      this.button.replaceChildren(...button.childNodes);
      this.button.setAttribute('aria-label', button.getAttribute('aria-label'));
      this.button.title = button.title;
      this.button.dataset.shows = name;
    }
    this.root.classList.toggle('playing', this.isPlaying);
    const length = speech.seconds;
    const formatTime = (value) => (length < 60 ? value.toFixed(1) : clock(value));
    this.time.textContent = this.isPlaying || this.position
      ? `${formatTime(this.position / speech.rate)} / ${formatTime(length)}${length < 60 ? ' s' : ''}` : `${formatTime(length)}${length < 60 ? ' s' : ''}`;
    this.note.textContent = this.isPlaying && this.isWaiting && !speech.isComplete ? 'Buffering: the model generates speech more slowly than real time' : '';
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
    const peaks = this.cachedPeaks(count);
    const [playedColour, waveColour, emptyColour] = [colour(wave, '--accent'), colour(wave, '--wave'), colour(wave, '--line')];
    for (let bar = 0; bar < count; bar += 1) {
      const sample = ((bar + 0.5) / count) * this.displayedLength;
      pen.fillStyle = sample >= speech.length ? emptyColour : sample < this.position ? playedColour : waveColour;
      const barHeight = Math.max(2, (peaks[bar] / 32768) ** 0.6 * height);
      pen.beginPath();
      pen.roundRect(bar * BAR, (height - barHeight) / 2, BAR - 1, barHeight, 1);
      pen.fill();
    }
  }

  cachedPeaks(count) {
    const key = `${count} ${this.speech.length} ${this.displayedLength}`;
    if (this.peakCache?.key !== key) this.peakCache = {key, values: findPeaks(this.speech.samplesFrom(), count, this.displayedLength)};
    return this.peakCache.values;
  }
}
