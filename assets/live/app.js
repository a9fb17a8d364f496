// The live microphone of the Transcribe tab: text while somebody speaks, and what was said as a file.
import {Microphone, noMicrophone, place} from './microphone.js';

const KEEP = 300; // chunks of sound that become one part of the file, which the browser may move to the disk
const BLOCK = 60; // finished stretches that are drawn; older ones fold into one text

const make = (tag, attributes = {}, ...content) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, '');
    else if (value !== false && value !== null) made.setAttribute(name, value);
  }
  made.append(...content.filter((each) => each));
  return made;
};

const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, '0')}`;

const save = (name, blob) => {
  const link = make('a', {href: URL.createObjectURL(blob), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};

const wavHead = (rate, bytes) => {
  const head = new DataView(new ArrayBuffer(44));
  const word = (at, letters) => [...letters].forEach((letter, index) => head.setUint8(at + index, letter.charCodeAt(0)));
  word(0, 'RIFF'); word(8, 'WAVE'); word(12, 'fmt '); word(36, 'data');
  [[4, 36 + bytes], [16, 16], [24, rate], [28, 2 * rate], [40, bytes]].forEach(([at, value]) => head.setUint32(at, value, true));
  [[20, 1], [22, 1], [32, 2], [34, 16]].forEach(([at, value]) => head.setUint16(at, value, true));
  return head;
};

class Live {
  constructor(element) {
    this.root = make('div', {class: 'live'});
    element.replaceChildren(this.root);
    this.models = make('select', {'aria-label': 'Model of the live microphone'});
    this.begin = make('button', {type: 'button', class: 'live-begin', onclick: () => this.start()}, 'Start live');
    this.hold = make('button', {type: 'button', hidden: true, onclick: () => this.pause()}, 'Pause');
    this.end = make('button', {type: 'button', class: 'live-stop', hidden: true, onclick: () => this.stop()}, 'Stop');
    this.level = make('meter', {min: 0, max: 1, hidden: true, 'aria-label': 'Level of the microphone'});
    this.time = make('span', {class: 'live-time', role: 'timer'});
    this.note = make('p', {class: 'live-note muted small', role: 'status'});
    this.older = make('p', {class: 'live-older'});
    this.text = make('div', {class: 'live-text', role: 'log', 'aria-live': 'polite', 'aria-label': 'Live transcript', tabindex: 0});
    this.files = make('div', {class: 'live-files', hidden: true}, make('span', {class: 'label'}, 'Save'),
      ...['txt', 'srt', 'vtt', 'json', 'wav'].map((form) => make('button', {type: 'button', onclick: () => this.save(form)}, form)));
    this.root.append(make('div', {class: 'live-line'}, this.models, this.begin, this.hold, this.end, this.level, this.time),
      this.note, this.text, this.files);
    const missing = noMicrophone();
    if (missing) {
      this.begin.disabled = true;
      this.note.textContent = missing;
    }
    this.clear();
    this.offer();
  }

  clear() {
    Object.assign(this, {finished: [], parts: [], fresh: [], samples: 0, drawn: new Map()});
    this.text.replaceChildren();
  }

  async offer() {
    try {
      const answer = await fetch(place('v1/models'));
      const {data} = await answer.json();
      const hearing = data.filter((model) => model.ready && model.tasks.includes('transcribe') && model.id.includes('|'));
      this.models.replaceChildren(...hearing.map((model) => make('option', {value: model.id}, model.title)));
      this.models.value = hearing.find((model) => model.id.startsWith('demo/sensevoice|pytorch'))?.id ?? hearing[0]?.id ?? '';
      if (!hearing.length) this.note.textContent = 'No model that transcribes can run here; the Models tab says why.';
    } catch {
      this.note.textContent = 'The models could not be listed; reload the page.';
    }
  }

  async start() {
    this.clear();
    this.files.hidden = true;
    this.note.textContent = 'Loading the model; speak when it says so.';
    this.microphone = new Microphone({
      request: {model: this.models.value}, hear: (samples, level) => this.hear(samples, level), tell: (event) => this.take(event),
    });
    this.running(true);
    try {
      await this.microphone.start();
    } catch (error) {
      await this.microphone.cancel();
      this.running(false);
      this.note.textContent = error.name === 'NotAllowedError' || error.name === 'NotFoundError'
        ? 'The browser gave no microphone; allow it for this page in the address bar, or plug one in.' : error.message;
    }
  }

  running(now) {
    this.begin.hidden = now;
    this.models.disabled = now;
    [this.hold, this.end, this.level].forEach((each) => { each.hidden = !now; });
    this.hold.textContent = 'Pause';
    this.root.dataset.running = now;
    this.root.scrollIntoView({block: 'nearest'}); // the tab's main button stands over the lower end of the screen
  }

  hear(samples, level) {
    this.fresh.push(samples);
    this.samples += samples.length;
    this.level.value = level;
    this.time.textContent = clock(this.samples / this.microphone.rate);
    if (this.fresh.length >= KEEP) this.parts.push(new Blob(this.fresh.splice(0)));
    if (this.microphone.behind) this.note.textContent = 'The model is slower than real time; the text comes later.';
  }

  take(event) {
    if (event.type === 'ready') this.note.textContent = 'Listening';
    else if (event.type === 'began') this.line(event).classList.add('partial');
    else if (event.type === 'written') this.line(event).textContent = event.text;
    else if (event.type === 'final') this.finish(event);
    else if (event.type === 'failed') this.line(event).textContent = event.sentence;
    else if (event.type === 'refused') this.note.textContent = event.sentence;
    else if (event.type === 'end') this.note.textContent = this.finished.length ? 'Stopped' : 'No speech was recognised.';
    else if (event.type === 'closed') this.closed();
  }

  line({number}) {
    if (!this.drawn.has(number)) {
      const line = make('p', {class: 'stretch'});
      this.drawn.set(number, line);
      this.text.append(line);
      this.root.dataset.partials ??= 0;
    }
    if (this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight < 80) this.text.scrollTop = this.text.scrollHeight;
    const line = this.drawn.get(number);
    if (line.classList.contains('partial')) this.root.dataset.partials = Number(this.root.dataset.partials || 0) + 1;
    return line;
  }

  finish(event) {
    const line = this.line(event);
    line.classList.remove('partial');
    line.textContent = event.text;
    line.title = `${clock(event.start)} to ${clock(event.end)}, ${event.delay.toFixed(2)} s after the end of speech`;
    Object.assign(this.root.dataset, {delay: event.delay});
    this.drawn.delete(event.number);
    if (!event.text) { line.remove(); return; }
    this.finished.push(event);
    while (this.text.childElementCount > BLOCK) { // hours of speech stay a few elements
      if (!this.older.isConnected) this.text.prepend(this.older);
      this.older.append(`${this.older.nextElementSibling.textContent} `);
      this.older.nextElementSibling.remove();
      this.older.normalize();
    }
  }

  pause() {
    const now = !this.microphone.paused;
    this.microphone.pause(now);
    this.hold.textContent = now ? 'Go on' : 'Pause';
    this.note.textContent = now ? 'Paused' : 'Listening';
  }

  async stop() {
    this.end.disabled = true;
    this.note.textContent = 'Transcribing the rest';
    await this.microphone.stop();
  }

  closed() {
    this.end.disabled = false;
    if (this.root.dataset.running !== 'true') return;
    if (!this.microphone.paused) this.note.textContent = this.note.textContent === 'Listening' ? 'The server ended the connection; the text so far is kept.' : this.note.textContent;
    this.microphone.cancel();
    this.running(false);
    this.files.hidden = !this.samples;
  }

  async save(form) {
    const name = `live-${new Date().toISOString().slice(0, 19).replaceAll(':', '-')}`;
    if (form === 'wav') {
      const head = wavHead(Math.round(this.microphone.rate), 2 * this.samples);
      save(`${name}.wav`, new Blob([head, ...this.parts, ...this.fresh], {type: 'audio/wav'}));
      return;
    }
    const segments = this.finished.flatMap((each) => each.segments);
    const answer = await fetch(place(`live/export?format=${form}`), {
      method: 'POST', body: JSON.stringify({model: this.models.value, seconds: this.samples / this.microphone.rate, segments,
        text: this.finished.map((each) => each.text)}),
    }).catch(() => null);
    if (!answer?.ok) { this.note.textContent = 'The file could not be written; is the server still running?'; return; }
    save(`${name}.${form}`, await answer.blob());
  }
}

export const open = (element) => new Live(element);
