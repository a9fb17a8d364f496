// The live microphone of the Transcribe tab: text while somebody speaks, then transcript and recording as files.
import {Microphone, noMicrophone, serverUrl} from './microphone.js';

const CHUNKS_PER_PART = 300; // chunks that become one Blob, which the browser may move from memory to disk
const MAX_LINES = 60; // finished lines that are elements; older lines become one text

const make = (tag, attributes = {}, ...content) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...content.filter((each) => each));
  return element;
};

const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, '0')}`;

const save = (name, blob) => {
  const link = make('a', {href: URL.createObjectURL(blob), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};

const wavHead = (rate, bytes) => {
  const header = new DataView(new ArrayBuffer(44));
  const writeText = (offset, letters) => [...letters].forEach((letter, index) => header.setUint8(offset + index, letter.charCodeAt(0)));
  writeText(0, 'RIFF'); writeText(8, 'WAVE'); writeText(12, 'fmt '); writeText(36, 'data');
  [[4, 36 + bytes], [16, 16], [24, rate], [28, 2 * rate], [40, bytes]].forEach(([offset, value]) => header.setUint32(offset, value, true));
  [[20, 1], [22, 1], [32, 2], [34, 16]].forEach(([offset, value]) => header.setUint16(offset, value, true));
  return header;
};

class LiveTranscript {
  constructor(element) {
    this.root = make('div', {class: 'live'});
    element.replaceChildren(this.root);
    this.modelSelect = make('select', {'aria-label': 'Model of the live microphone'});
    this.startButton = make('button', {type: 'button', class: 'live-begin', disabled: true, onclick: () => this.start()}, 'Start live');
    this.pauseButton = make('button', {type: 'button', hidden: true, onclick: () => this.pause()}, 'Pause');
    this.stopButton = make('button', {type: 'button', class: 'live-stop', hidden: true, onclick: () => this.stop()}, 'Stop');
    this.levelMeter = make('meter', {min: 0, max: 1, hidden: true, 'aria-label': 'Level of the microphone'});
    this.timeLabel = make('span', {class: 'live-time', role: 'timer'});
    this.note = make('p', {class: 'live-note muted small', role: 'status'});
    this.olderText = make('p', {class: 'live-older'});
    this.text = make('div', {class: 'live-text', role: 'log', 'aria-live': 'polite', 'aria-label': 'Live transcript', tabindex: 0});
    this.files = make('div', {class: 'live-files', hidden: true}, make('span', {class: 'label'}, 'Save'),
      ...['txt', 'srt', 'vtt', 'json', 'wav'].map((format) => make('button', {type: 'button', onclick: () => this.save(format)}, format)));
    this.root.append(make('div', {class: 'live-line'}, this.modelSelect, this.startButton, this.pauseButton, this.stopButton, this.levelMeter, this.timeLabel),
      this.note, this.text, this.files);
    this.note.textContent = noMicrophone();
    this.clear();
    this.loadModels();
  }

  clear() {
    Object.assign(this, {finished: [], parts: [], newChunks: [], sampleCount: 0, lines: new Map(), lost: ''});
    this.text.replaceChildren();
    this.olderText.replaceChildren();
    this.timeLabel.textContent = '';
  }

  async loadModels() {
    try {
      const answer = await fetch(serverUrl('v1/models'));
      const {data} = await answer.json();
      const transcribers = data.filter((model) => model.ready && model.tasks.includes('transcribe') && model.id.includes('|'));
      this.modelSelect.replaceChildren(...transcribers.map((model) => make('option', {value: model.id}, model.title)));
      this.modelSelect.value = transcribers.find((model) => model.id.startsWith('demo/sensevoice|pytorch'))?.id ?? transcribers[0]?.id ?? '';
      this.startButton.disabled = !transcribers.length || Boolean(noMicrophone());
      if (!transcribers.length) this.note.textContent = 'No model that transcribes can run here; the Models tab says why.';
    } catch {
      this.note.textContent = 'The models could not be listed; reload the page.';
    }
  }

  async start() {
    this.clear();
    this.files.hidden = true;
    this.note.textContent = 'Loading the model; speak when it says so.';
    const microphone = new Microphone({
      request: {model: this.modelSelect.value}, onSamples: (samples, level) => this.addSamples(samples, level),
      onEvent: (event) => { if (microphone === this.microphone) this.handleEvent(event); },
    });
    this.microphone = microphone;
    this.setRunning(true);
    this.pauseButton.disabled = true; // nothing is recorded yet
    try {
      await microphone.start();
      if (microphone === this.microphone) this.pauseButton.disabled = false;
    } catch (error) {
      await microphone.cancel();
      this.setRunning(false);
      this.note.textContent = error.name === 'NotAllowedError' || error.name === 'NotFoundError'
        ? 'The browser gave no microphone; allow it for this page in the address bar, or plug one in.' : error.message;
    }
  }

  setRunning(isRunning) {
    this.startButton.hidden = isRunning;
    this.modelSelect.disabled = isRunning;
    [this.pauseButton, this.stopButton, this.levelMeter].forEach((each) => { each.hidden = !isRunning; });
    this.pauseButton.textContent = 'Pause';
    this.stopButton.disabled = false;
    this.root.dataset.running = isRunning;
    this.root.scrollIntoView({block: 'nearest'}); // the tab's main button covers the lower edge of the screen
  }

  addSamples(samples, level) {
    this.newChunks.push(samples);
    this.sampleCount += samples.length;
    this.levelMeter.value = level;
    this.timeLabel.textContent = clock(this.sampleCount / this.microphone.rate);
    if (this.newChunks.length >= CHUNKS_PER_PART) this.parts.push(new Blob(this.newChunks.splice(0)));
    if (this.microphone.isBehind) this.note.textContent = 'The model is slower than real time; the text comes later.';
  }

  handleEvent(event) {
    if (event.type === 'ready') this.note.textContent = 'Listening';
    else if (event.type === 'began') this.lineOf(event).classList.add('partial');
    else if (event.type === 'written') this.lineOf(event).textContent = event.text;
    else if (event.type === 'final') this.finish(event);
    else if (event.type === 'failed') this.lineOf(event).textContent = event.sentence;
    else if (event.type === 'refused') this.note.textContent = event.sentence;
    else if (event.type === 'end') this.note.textContent = this.lost || (this.finished.length ? 'Stopped' : 'No speech was recognised.');
    else if (event.type === 'lost') {
      this.lost = event.sentence;
      this.stop();
    }
    else if (event.type === 'closed') this.handleClose();
  }

  lineOf({number}) {
    if (!this.lines.has(number)) {
      const line = make('p', {class: 'stretch'});
      this.lines.set(number, line);
      this.text.append(line);
      this.root.dataset.partials ??= 0;
    }
    if (this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight < 80) this.text.scrollTop = this.text.scrollHeight;
    const line = this.lines.get(number);
    if (line.classList.contains('partial')) this.root.dataset.partials = Number(this.root.dataset.partials || 0) + 1;
    return line;
  }

  finish(event) {
    const line = this.lineOf(event);
    line.classList.remove('partial');
    line.textContent = event.text;
    line.title = `${clock(event.start)} to ${clock(event.end)}, ${event.delay.toFixed(2)} s after the end of speech`;
    Object.assign(this.root.dataset, {delay: event.delay});
    this.lines.delete(event.number);
    if (!event.text) { line.remove(); return; }
    this.finished.push(event);
    while (this.text.childElementCount > MAX_LINES) { // hours of speech need few elements
      if (!this.olderText.isConnected) this.text.prepend(this.olderText);
      this.olderText.append(`${this.olderText.nextElementSibling.textContent} `);
      this.olderText.nextElementSibling.remove();
      this.olderText.normalize();
    }
  }

  pause() {
    const isPaused = !this.microphone.isPaused;
    this.microphone.pause(isPaused);
    this.pauseButton.textContent = isPaused ? 'Go on' : 'Pause';
    this.note.textContent = isPaused ? 'Paused' : 'Listening';
  }

  async stop() {
    if (!this.microphone.isOpen) { // nothing was recorded yet
      this.setRunning(false);
      this.note.textContent = this.lost || 'Stopped';
      await this.microphone.cancel();
      return;
    }
    this.stopButton.disabled = true;
    this.note.textContent = 'Transcribing the rest';
    await this.microphone.stop();
  }

  handleClose() {
    if (this.root.dataset.running !== 'true') return;
    if (['Listening', 'Paused'].includes(this.note.textContent)) this.note.textContent = 'The server ended the connection; the text so far is kept.';
    this.microphone.cancel();
    this.setRunning(false);
    this.files.hidden = !this.sampleCount;
  }

  async save(format) {
    const name = `live-${new Date().toISOString().slice(0, 19).replaceAll(':', '-')}`;
    if (format === 'wav') {
      const header = wavHead(Math.round(this.microphone.rate), 2 * this.sampleCount);
      save(`${name}.wav`, new Blob([header, ...this.parts, ...this.newChunks], {type: 'audio/wav'}));
      return;
    }
    const segments = this.finished.flatMap((each) => each.segments);
    const answer = await fetch(serverUrl(`live/export?format=${format}`), {
      method: 'POST', body: JSON.stringify({model: this.microphone.request.model, seconds: this.sampleCount / this.microphone.rate, segments,
        text: this.finished.map((each) => each.text)}),
    }).catch(() => null);
    if (!answer?.ok) { this.note.textContent = 'The file could not be written; is the server still running?'; return; }
    save(`${name}.${format}`, await answer.blob());
  }
}

export const open = (element) => new LiveTranscript(element);
