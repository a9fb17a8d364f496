// Where a turn is written: text, a recording or a dropped file; Enter sends, Shift and Enter makes a new line.
import {clock, iconButton, make} from './dom.js';
import {Recording, Speech, engine, noMicrophone} from './sound.js';
import {Voice} from './voice.js';
import {post, unpack} from './wire.js';

const LONGEST = 300; // seconds of a recording
const LEVELS = 48;

export class Composer {
  // `send({text, sound})` returns whether the turn was taken; `stop` ends the answer; `open` takes a replay bundle;
  // `talk` begins or ends a conversation by voice.
  constructor({send, stop, open, talk, say}) {
    Object.assign(this, {send, stop, open, say, sound: null, recording: null, running: false});
    this.area = make('textarea', {rows: 1, id: 'chat-text', 'aria-label': 'Message', placeholder: 'Write a message',
      oninput: () => this.fit(), onkeydown: (event) => this.key(event)});
    this.file = make('input', {type: 'file', class: 'sr', tabindex: -1, 'aria-hidden': 'true', accept: 'audio/*,.zip',
      onchange: () => this.take(this.file.files[0])});
    this.attach = iconButton('clip', 'Add a recording, or open a saved conversation', () => this.file.click());
    this.mic = iconButton('mic', 'Record with the microphone', () => this.record());
    this.talk = iconButton('talk', 'Talk: a pause ends your turn, and your speech interrupts the answer', talk, 'talk');
    this.talk.setAttribute('aria-pressed', 'false');
    this.main = make('button', {type: 'button', class: 'tool send', id: 'chat-send', onclick: () => this.press()});
    this.held = make('div', {class: 'held-sound'});
    this.live = make('div', {class: 'recording', hidden: true});
    this.root = make('div', {class: 'composer'}, this.held,
      make('div', {class: 'line'}, this.attach, this.area, this.live, this.mic, this.talk, this.main, this.file));
    this.fit();
    this.show(false);
  }

  // What can be sent now, and to whom.
  show(running, hears = true) {
    this.running = running;
    const stopping = running && !this.recording;
    const drawn = iconButton(stopping ? 'stop' : 'send', stopping ? 'Stop' : 'Send', () => {});
    this.main.replaceChildren(...drawn.childNodes);
    this.main.setAttribute('aria-label', stopping ? 'Stop' : 'Send');
    this.main.title = stopping ? 'Stop (Esc)' : 'Send (Enter)';
    this.main.classList.toggle('stopping', stopping);
    this.mic.hidden = Boolean(this.recording) || !hears;
    this.talk.hidden = this.mic.hidden;
    this.area.placeholder = hears ? 'Write or speak' : 'Write a message';
  }

  fit() {
    this.area.style.height = 'auto';
    this.area.style.height = `${Math.min(200, this.area.scrollHeight)}px`;
  }

  key(event) {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!this.running) this.press();
    }
  }

  async press() {
    if (this.recording) { await this.finish(true); if (this.running) return; }
    if (this.running) { this.stop(); return; }
    const turn = {text: this.area.value.trim(), sound: this.sound};
    if (!turn.text && !turn.sound) {
      this.say('Write or record something first.');
      this.area.focus();
      return;
    }
    engine.wake(engine.context?.sampleRate).catch(() => {});
    if (this.send(turn)) this.clear();
  }

  clear() {
    this.area.value = '';
    this.hold(null);
    this.fit();
    this.area.focus({preventScroll: true});
  }

  fill({text, sound}) {
    this.area.value = text;
    this.hold(sound || null);
    this.fit();
    this.area.focus();
  }

  // Shows the recording that goes with the next turn, or none.
  hold(sound, name = 'Recording') {
    this.sound = sound;
    this.held.replaceChildren();
    if (!sound) return;
    const voice = new Voice(new Speech(sound.rate, sound.samples), {label: name});
    this.held.append(make('span', {class: 'held-name'}, name), voice.root,
      iconButton('close', `Remove ${name}`, () => { this.hold(null); this.area.focus(); }));
  }

  // Takes a file that was dropped or chosen: a recording, or a replay bundle.
  async take(file) {
    this.file.value = '';
    if (!file) return;
    this.say('');
    try {
      if (/\.zip$/i.test(file.name) || file.type === 'application/zip') { await this.open(file); return; }
      this.say(`Reading ${file.name}`, 'working');
      const {content, sounds} = unpack(await post(`sound?name=${encodeURIComponent(file.name)}`, file));
      this.hold(sounds[0], content.name);
      this.say(content.notes.join(' '));
      this.area.focus();
    } catch (error) {
      this.say(error.message);
    }
  }

  async record() {
    const missing = noMicrophone();
    if (missing) { this.say(missing); return; }
    this.say('');
    const levels = [];
    const bars = make('span', {class: 'bars', 'aria-hidden': 'true'});
    const time = make('span', {class: 'time', role: 'timer'}, '0:00');
    this.recording = new Recording((level) => {
      levels.push(level);
      if (levels.length % 8) return;
      const bar = make('i', {});
      bar.style.height = `${Math.max(8, 100 * Math.max(...levels.splice(0)))}%`;
      bars.append(bar);
      while (bars.childElementCount > LEVELS) bars.firstElementChild.remove();
      time.textContent = clock(this.recording?.seconds || 0);
      if (this.recording?.seconds > LONGEST) this.finish();
    });
    this.live.replaceChildren(
      iconButton('close', 'Discard the recording', () => this.finish(false, true)), bars, time,
      iconButton('check', 'Keep the recording', () => this.finish()));
    try {
      await this.recording.start();
    } catch {
      this.recording = null;
      this.say('The browser gave no microphone; allow it for this page, or drop a recording instead.');
      return;
    }
    this.area.hidden = true;
    this.live.hidden = false;
    this.attach.hidden = true;
    this.show(this.running);
    this.main.focus();
  }

  async finish(sending = false, thrown = false) {
    const recording = this.recording;
    if (!recording) return;
    this.recording = null;
    const sound = await recording.stop();
    this.area.hidden = false;
    this.live.hidden = true;
    this.attach.hidden = false;
    this.show(this.running);
    if (thrown) { this.area.focus(); return; }
    if (sound.samples.length < sound.rate / 10) { this.say('The recording is shorter than 0.1 s; speak before you end it.'); return; }
    this.hold(sound);
    if (!sending) this.area.focus();
  }
}
