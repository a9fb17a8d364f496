// A conversation by voice: a pause ends a turn, and speech during an answer interrupts the answer.
//
// The server detects speech (through the websocket of the live microphone, without a model); this file cuts the samples
// of a turn.
import {Microphone, noMicrophone} from '../../live/scripts/microphone.js';
import {engine} from './sound.js';

const BUFFER_SECONDS = 60; // of sound that are kept for the current turn; the server ends a turn after 30
const MARGIN = 0.15; // seconds of sound before and after the detected speech
const END_SILENCE = 700; // ms of silence that end a turn
const RETRY_DELAY = 50; // ms; a turn is offered again while the answer that it interrupts is ending
const MAX_TRIES = 200;

const wait = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });

class Talking {
  // `sendTurn(sound)` returns whether the turn was accepted, `interrupt()` ends the answer, `show({state, level})`
  // shows the state, and `end(sentence)` is called at the end, with the reason unless the visitor ended it.
  constructor({sendTurn, interrupt, show, end}) {
    Object.assign(this, {sendTurn, interrupt, show, end, parts: [], firstSample: 0, length: 0, isOver: false, state: 'Loading'});
    this.microphone = new Microphone({request: {endSilence: END_SILENCE}, echo: true,
      onSamples: (samples, level) => this.addSamples(samples, level), onEvent: (event) => this.handleEvent(event)});
  }

  async start() {
    const reason = noMicrophone();
    if (reason) { this.stop(reason); return; }
    try {
      await this.microphone.start();
    } catch (error) {
      this.stop(['NotAllowedError', 'NotFoundError'].includes(error.name)
        ? 'The browser gave no microphone; allow it for this page in the address bar, or plug one in.' : error.message);
    }
  }

  stop(sentence = '') {
    if (this.isOver) return;
    this.isOver = true;
    this.microphone.cancel().catch(() => {});
    this.end(sentence);
  }

  addSamples(samples, level) {
    this.parts.push(samples);
    this.length += samples.length;
    while (this.length - this.firstSample > BUFFER_SECONDS * this.microphone.rate) this.firstSample += this.parts.shift().length;
    this.show({state: this.state, level});
  }

  handleEvent(event) {
    if (event.type === 'ready') this.state = 'Listening';
    else if (event.type === 'began') {
      this.state = 'Hearing you';
      this.interrupt();
    } else if (event.type === 'spoke') {
      this.state = 'Listening';
      this.offerTurn(this.cutSamples(event.start - MARGIN, event.end + MARGIN));
    } else if (event.type === 'refused' || event.type === 'lost') this.stop(event.sentence);
    else if (event.type === 'closed') this.stop('The server ended the connection; press Talk to go on.');
  }

  // Returns the samples between two times, in seconds since the start.
  cutSamples(start, end) {
    const {rate} = this.microphone;
    const [from, to] = [start, end].map((seconds) => Math.max(this.firstSample, Math.min(this.length, Math.round(seconds * rate))));
    const samples = new Int16Array(to - from);
    let partStart = this.firstSample;
    for (const part of this.parts) {
      const [begin, finish] = [Math.max(from, partStart), Math.min(to, partStart + part.length)];
      if (begin < finish) samples.set(part.subarray(begin - partStart, finish - partStart), begin - from);
      partStart += part.length;
    }
    return {rate: Math.round(rate), samples};
  }

  async offerTurn(sound) {
    for (let tries = 0; tries < MAX_TRIES && !this.isOver && !this.sendTurn(sound); tries += 1) await wait(RETRY_DELAY);
  }
}

// Begins and ends a conversation by voice in the open chat, and shows its state on the Talk button.
export class VoiceControl {
  constructor(page) { Object.assign(this, {page, conversation: null}); }

  stop() { this.conversation?.stop(); }

  toggle() {
    if (this.conversation) { this.stop(); return; }
    const {page} = this;
    engine.wake(engine.context?.sampleRate).catch(() => {});
    this.conversation = new Talking({
      sendTurn: (sound) => page.sendTurn({text: '', sound}),
      interrupt: () => { if (page.answering.live || engine.playback) page.answering.stop(); },
      show: ({state, level}) => this.show(state, level),
      end: (sentence) => { this.conversation = null; this.show('', 0); page.showNotice(sentence); },
    });
    this.show('Opening the microphone', 0);
    this.conversation.start();
  }

  show(state, level) {
    const {talkButton} = this.page.composer;
    talkButton.setAttribute('aria-pressed', String(Boolean(state)));
    talkButton.style.setProperty('--level', level.toFixed(2));
    if (this.page.root.dataset.talk === state) return;
    this.page.root.dataset.talk = state;
    if (state) this.page.showNotice(state);
  }
}
