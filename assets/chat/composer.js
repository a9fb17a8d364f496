// The input of a turn: text, a recording or a dropped file; Enter sends, Shift and Enter makes a new line.
import {clock, iconButton, make} from './dom.js';
import {Recording, Speech, engine, noMicrophone} from './sound.js';
import {Voice} from './voice.js';
import {post, unpack} from './wire.js';

const MAX_SECONDS = 300; // of a recording
const MAX_BARS = 48;

export class Composer {
  // `send({text, sound})` returns whether the turn was accepted; `stop` ends the answer; `openBundle` opens a replay
  // bundle; `talk` begins or ends a conversation by voice; `showNotice` shows a sentence.
  constructor({send, stop, openBundle, talk, showNotice}) {
    Object.assign(this, {send, stop, openBundle, showNotice, sound: null, recording: null, isRunning: false});
    this.textArea = make('textarea', {rows: 1, id: 'chat-text', 'aria-label': 'Message', placeholder: 'Write a message',
      oninput: () => this.fitHeight(), onkeydown: (event) => this.handleKey(event)});
    this.fileInput = make('input', {type: 'file', class: 'sr', tabindex: -1, 'aria-hidden': 'true', accept: 'audio/*,.zip',
      onchange: () => this.takeFile(this.fileInput.files[0])});
    this.attachButton = iconButton('clip', 'Add a recording, or open a saved conversation', () => this.fileInput.click());
    this.micButton = iconButton('mic', 'Record with the microphone', () => this.record());
    this.talkButton = iconButton('talk', 'Talk: a pause ends your turn, and your speech interrupts the answer', talk, 'talk');
    this.talkButton.setAttribute('aria-pressed', 'false');
    this.sendButton = make('button', {type: 'button', class: 'tool send', id: 'chat-send', onclick: () => this.submit()});
    this.soundBox = make('div', {class: 'held-sound'});
    this.recordingBox = make('div', {class: 'recording', hidden: true});
    this.root = make('div', {class: 'composer'}, this.soundBox,
      make('div', {class: 'line'}, this.attachButton, this.textArea, this.recordingBox, this.micButton, this.talkButton, this.sendButton, this.fileInput));
    this.fitHeight();
    this.show(false);
  }

  // Shows the buttons for the current state: whether an answer is running, and whether a model accepts speech.
  show(isRunning, canHear = true) {
    this.isRunning = isRunning;
    const showsStop = isRunning && !this.recording;
    const button = iconButton(showsStop ? 'stop' : 'send', showsStop ? 'Stop' : 'Send', () => {});
    this.sendButton.replaceChildren(...button.childNodes);
    this.sendButton.setAttribute('aria-label', showsStop ? 'Stop' : 'Send');
    this.sendButton.title = showsStop ? 'Stop (Esc)' : 'Send (Enter)';
    this.sendButton.classList.toggle('stopping', showsStop);
    this.micButton.hidden = Boolean(this.recording) || !canHear;
    this.talkButton.hidden = this.micButton.hidden;
    this.textArea.placeholder = canHear ? 'Write or speak' : 'Write a message';
  }

  fitHeight() {
    this.textArea.style.height = 'auto';
    this.textArea.style.height = `${Math.min(200, this.textArea.scrollHeight)}px`;
  }

  handleKey(event) {
    // The Enter that ends the composition of a character sends nothing. Safari marks it by its key code only.
    const isComposing = event.isComposing || event.keyCode === 229;
    if (event.key === 'Enter' && !event.shiftKey && !isComposing) {
      event.preventDefault();
      if (!this.isRunning) this.submit();
    }
  }

  async submit() {
    if (this.recording) { await this.finish(true); if (this.isRunning) return; }
    if (this.isRunning) { this.stop(); return; }
    const turn = {text: this.textArea.value.trim(), sound: this.sound};
    if (!turn.text && !turn.sound) {
      this.showNotice('Write or record something first.');
      this.textArea.focus();
      return;
    }
    engine.wake(engine.context?.sampleRate).catch(() => {});
    if (this.send(turn)) this.clear();
  }

  clear() {
    this.textArea.value = '';
    this.setSound(null);
    this.fitHeight();
    this.textArea.focus({preventScroll: true});
  }

  fill({text, sound}) {
    this.textArea.value = text;
    this.setSound(sound || null);
    this.fitHeight();
    this.textArea.focus();
  }

  // Sets and shows the recording of the next turn; null removes it.
  setSound(sound, name = 'Recording') {
    this.sound = sound;
    this.soundBox.replaceChildren();
    if (!sound) return;
    const voice = new Voice(new Speech(sound.rate, sound.samples), {label: name});
    this.soundBox.append(make('span', {class: 'held-name'}, name), voice.root,
      iconButton('close', `Remove ${name}`, () => { this.setSound(null); this.textArea.focus(); }));
  }

  // Opens a file that was dropped or chosen: a recording, or a replay bundle.
  async takeFile(file) {
    this.fileInput.value = '';
    if (!file) return;
    this.showNotice('');
    try {
      if (/\.zip$/i.test(file.name) || file.type === 'application/zip') { await this.openBundle(file); return; }
      this.showNotice(`Reading ${file.name}`, 'working');
      const {content, sounds} = unpack(await post(`sound?name=${encodeURIComponent(file.name)}`, file));
      this.setSound(sounds[0], content.name);
      this.showNotice(content.notes.join(' '));
      this.textArea.focus();
    } catch (error) {
      this.showNotice(error.message);
    }
  }

  async record() {
    const reason = noMicrophone();
    if (reason) { this.showNotice(reason); return; }
    this.showNotice('');
    const levels = [];
    const bars = make('span', {class: 'bars', 'aria-hidden': 'true'});
    const time = make('span', {class: 'time', role: 'timer'}, '0:00');
    this.recording = new Recording((level) => {
      levels.push(level);
      if (levels.length % 8) return;
      const bar = make('i', {});
      bar.style.height = `${Math.max(8, 100 * Math.max(...levels.splice(0)))}%`;
      bars.append(bar);
      while (bars.childElementCount > MAX_BARS) bars.firstElementChild.remove();
      time.textContent = clock(this.recording?.seconds || 0);
      if (this.recording?.seconds > MAX_SECONDS) this.finish();
    });
    this.recordingBox.replaceChildren(
      iconButton('close', 'Discard the recording', () => this.finish(false, true)), bars, time,
      iconButton('check', 'Keep the recording', () => this.finish()));
    try {
      await this.recording.start();
    } catch {
      this.recording = null;
      this.showNotice('The browser gave no microphone; allow it for this page, or drop a recording instead.');
      return;
    }
    this.textArea.hidden = true;
    this.recordingBox.hidden = false;
    this.attachButton.hidden = true;
    this.show(this.isRunning);
    this.sendButton.focus();
  }

  async finish(willSend = false, isDiscarded = false) {
    const recording = this.recording;
    if (!recording) return;
    this.recording = null;
    const sound = await recording.stop();
    this.textArea.hidden = false;
    this.recordingBox.hidden = true;
    this.attachButton.hidden = false;
    this.show(this.isRunning);
    if (isDiscarded) { this.textArea.focus(); return; }
    if (sound.samples.length < sound.rate / 10) { this.showNotice('The recording is shorter than 0.1 s; speak before you end it.'); return; }
    this.setSound(sound);
    if (!willSend) this.textArea.focus();
  }
}
