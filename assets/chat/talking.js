// A conversation by voice: a pause ends a turn, and whoever speaks while an answer comes interrupts it.
//
// The server says when somebody speaks (the websocket of the live microphone, without a model); the sound of a turn is
// cut here.
import {Microphone, noMicrophone} from '../../live/scripts/microphone.js';
import {engine} from './sound.js';

const KEPT = 60; // seconds of sound that are kept for the turn that is being spoken; the server cuts one after 30
const AROUND = 0.15; // seconds of sound before and after what counts as speech
const PAUSE = 700; // ms of silence that end a turn
const AGAIN = 50; // ms until a turn is offered again, while the answer that it interrupts is ending
const TRIES = 200;

const wait = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });

class Talking {
  // `ask(sound)` returns whether the turn was taken, `interrupt()` ends the answer, `show({state, level})` hears what
  // happens, and `end(sentence)` that it is over, with the reason if nobody asked for it.
  constructor({ask, interrupt, show, end}) {
    Object.assign(this, {ask, interrupt, show, end, parts: [], first: 0, length: 0, over: false, state: 'Loading'});
    this.microphone = new Microphone({request: {endSilence: PAUSE}, echo: true,
      hear: (samples, level) => this.hear(samples, level), tell: (event) => this.take(event)});
  }

  async start() {
    const missing = noMicrophone();
    if (missing) { this.stop(missing); return; }
    try {
      await this.microphone.start();
    } catch (error) {
      this.stop(['NotAllowedError', 'NotFoundError'].includes(error.name)
        ? 'The browser gave no microphone; allow it for this page in the address bar, or plug one in.' : error.message);
    }
  }

  stop(sentence = '') {
    if (this.over) return;
    this.over = true;
    this.microphone.cancel().catch(() => {});
    this.end(sentence);
  }

  hear(samples, level) {
    this.parts.push(samples);
    this.length += samples.length;
    while (this.length - this.first > KEPT * this.microphone.rate) this.first += this.parts.shift().length;
    this.show({state: this.state, level});
  }

  take(event) {
    if (event.type === 'ready') this.state = 'Listening';
    else if (event.type === 'began') {
      this.state = 'Hearing you';
      this.interrupt();
    } else if (event.type === 'spoke') {
      this.state = 'Listening';
      this.turn(this.cut(event.start - AROUND, event.end + AROUND));
    } else if (event.type === 'refused') this.stop(event.sentence);
    else if (event.type === 'closed') this.stop('The server ended the connection; press Talk to go on.');
  }

  // The samples of a time, in seconds since the start.
  cut(start, end) {
    const {rate} = this.microphone;
    const [from, to] = [start, end].map((seconds) => Math.max(this.first, Math.min(this.length, Math.round(seconds * rate))));
    const samples = new Int16Array(to - from);
    let at = this.first;
    for (const part of this.parts) {
      const [low, high] = [Math.max(from, at), Math.min(to, at + part.length)];
      if (low < high) samples.set(part.subarray(low - at, high - at), low - from);
      at += part.length;
    }
    return {rate: Math.round(rate), samples};
  }

  async turn(sound) {
    for (let tries = 0; tries < TRIES && !this.over && !this.ask(sound); tries += 1) await wait(AGAIN);
  }
}

// The button that begins and ends a conversation by voice in the chat that is open.
export class ByVoice {
  constructor(page) { Object.assign(this, {page, talking: null}); }

  stop() { this.talking?.stop(); }

  toggle() {
    if (this.talking) { this.stop(); return; }
    const {page} = this;
    engine.wake(engine.context?.sampleRate).catch(() => {});
    this.talking = new Talking({
      ask: (sound) => page.ask({text: '', sound}),
      interrupt: () => { if (page.answering.live || engine.now) page.answering.stop(); },
      show: ({state, level}) => this.show(state, level),
      end: (sentence) => { this.talking = null; this.show('', 0); page.say(sentence); },
    });
    this.show('Opening the microphone', 0);
    this.talking.start();
  }

  show(state, level) {
    const {talk} = this.page.composer;
    talk.setAttribute('aria-pressed', String(Boolean(state)));
    talk.style.setProperty('--level', level.toFixed(2));
    if (this.page.root.dataset.talk === state) return;
    this.page.root.dataset.talk = state;
    if (state) this.page.say(state);
  }
}
